//! Numbers by which threads and tasks are known.

/// Number of a task of an event loop.
pub type TaskId = u32;

/// A number that no task has.
pub const NO_TASK: TaskId = TaskId::MAX;

/// Number of a worker thread.
pub type WorkerId = u8;

/// A time in microseconds since the start of the proxy.
pub type Us = u64;

/// A task of a worker, to be woken.
pub type Waiter = (WorkerId, TaskId);
