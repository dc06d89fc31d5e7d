//! Numbers of threads and tasks.

pub type TaskId = u32;

pub const NO_TASK: TaskId = TaskId::MAX;

pub type WorkerId = u8;

/// Microseconds since the start of the proxy.
pub type Us = u64;

/// A task to be woken, and its worker.
pub type Waiter = (WorkerId, TaskId);
