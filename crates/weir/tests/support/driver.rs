//! tokio-postgres, a driver people use, as a blocking client.

use std::future::Future;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, NoTls};

/// The user and the place of a login.
#[derive(Clone, Debug)]
pub struct Login {
    pub port: u16,
    pub user: String,
    pub password: String,
    pub database: String,
}

impl Login {
    pub fn new(port: u16, user: &str, password: &str) -> Login {
        Login { port, user: user.into(), password: password.into(), database: "postgres".into() }
    }
}

/// Runs one asynchronous story to its end.
pub fn block_on<T>(story: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(story)
}

/// A connected client, and the task that moves its bytes.
pub async fn connect(login: &Login) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
    let mut config = Config::new();
    config.host("127.0.0.1").port(login.port).user(&login.user).dbname(&login.database);
    if !login.password.is_empty() {
        config.password(&login.password);
    }
    let (client, connection) = config.connect(NoTls).await?;
    let mover = tokio::spawn(async move {
        // Its end is seen by the client.
        let _ = connection.await;
    });
    Ok((client, mover))
}

/// The one text a query returns, or its failure: SQLSTATE and message.
pub fn value(login: &Login, text: &str) -> Result<String, String> {
    block_on(async {
        let (client, _mover) = connect(login).await.map_err(|error| describe(&error))?;
        let row = client.query_one(text, &[]).await.map_err(|error| describe(&error))?;
        Ok(row.get(0))
    })
}

pub fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{}: {}", error.code().code(), error.message()),
        None => error.to_string(),
    }
}
