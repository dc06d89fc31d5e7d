pub mod act_book;
pub mod dice;
pub mod oracle;
pub mod world;
