pub mod dice;
pub mod oracle;
pub mod world;
