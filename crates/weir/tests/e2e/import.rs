//! `weir import`: PgBouncer's setup, served by Weir.

use crate::support::driver::{self, Login};
use crate::support::proxy::Folder;
use crate::support::{Ground, Raw, wait_until};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use weir_demo::ReservedPort;

#[test]
fn an_imported_setup_serves_the_same_users_and_databases() {
    let ground = Ground::new();
    let folder = Folder::new();
    let port = ReservedPort::any().unwrap();
    let (here, server) = (folder.0.display(), ground.cluster.primary().port());
    let ini = format!(
        "[databases]\n* = host=127.0.0.1 port={server}\n{} = host=127.0.0.1 port={server} pool_size=1 dbname={}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nauth_type = scram-sha-256\nauth_file = userlist.txt\n\
         admin_users = boss\npool_mode = transaction\nunix_socket_dir = {here}\npidfile = {here}/weir.pid\nserver_round_robin = 1\n",
        ground.database,
        ground.database,
        port.number()
    );
    fs::write(folder.0.join("pgbouncer.ini"), ini).unwrap();
    fs::write(folder.0.join("userlist.txt"), "\"boss\" \"se\"\"cret\"\n\"postgres\" \"other\"\n").unwrap();
    let import = |more: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_weir")).arg("import").arg(folder.0.join("pgbouncer.ini")).args(more).output().unwrap()
    };
    let printed = import(&[]);
    assert!(printed.status.success());
    assert!(String::from_utf8_lossy(&printed.stdout).contains("pool_mode = transaction"));
    let notes = String::from_utf8_lossy(&printed.stderr).into_owned();
    assert!(notes.contains("pgbouncer.ini:13: server_round_robin: no equal"), "{notes}");
    let into = folder.0.display().to_string();
    assert!(import(&["--into", &into]).status.success());
    assert!(!import(&["--into", &into]).status.success(), "nothing is overwritten");
    let mode = fs::metadata(folder.0.join("pool_passwd")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let conf = folder.0.join("pgpool.conf");
    let check = Command::new(env!("CARGO_BIN_EXE_weir")).args(["check", "-f"]).arg(&conf).output().unwrap();
    assert!(check.status.success() && check.stderr.is_empty(), "{}", String::from_utf8_lossy(&check.stderr));
    let mut process = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_weir"), "-f"])
        .arg(&conf)
        .spawn()
        .expect("setpriv is installed");
    wait_until("it to accept", || Raw::try_tcp(port.number()).is_some());
    let login = |user: &str, password: &str, database: &str| Login {
        database: database.into(),
        ..Login::new(port.number(), user, password)
    };
    let one = driver::value(&login("postgres", "other", &ground.database), "select current_database()::text");
    assert_eq!(one, Ok(ground.database.clone()));
    assert!(driver::value(&login("postgres", "wrong", &ground.database), "select 1::text").unwrap_err().starts_with("28P01"));
    driver::block_on(async {
        let (console, _mover) = driver::connect(&login("boss", "se\"cret", "pgbouncer")).await.unwrap();
        let rows = console.query("SHOW DATABASES", &[]).await.unwrap();
        let ours = rows.iter().find(|row| row.get::<_, &str>("name") == ground.database).unwrap();
        assert_eq!(ours.get::<_, i32>("pool_size"), 1);
    });
    process.kill().unwrap();
    process.wait().unwrap();
}
