//! A file system that is really full: new purchases stop, what must go on goes on, and when there
//! is room again the sale does so by itself.
//!
//! The server runs in a mount namespace of its own, on a small ext4 in a file; this test looks in
//! through `/proc`. A machine without loop devices fails it, unless `SLUICE_TEST_DISK=tmpfs` says
//! that a file system in memory will do: it proves less.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/books.rs"]
mod books;
mod common;
#[path = "common/provider.rs"]
mod provider;
#[path = "common/shop.rs"]
mod shop;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{PATIENCE, Server, sluice, token};
use serde_json::json;
use shop::{Answer, Connection, scratch};

/// Room for a handful of segments, the orders, and ext4's own journal.
const DISK_BYTES: u64 = 64 << 20;

/// The smallest segment that the default frame allows.
const SEGMENT_BYTES: &str = "2101248";

/// Purchases, one frame each, that fill a segment.
const SEGMENT_PURCHASES: u64 = 512;

/// Purchases in which every spare segment must be used up: the eight that a large sale has at most,
/// and the one that is being filled.
const PURCHASES_MAX: u64 = 10 * SEGMENT_PURCHASES;

/// Mounts a small file system at `$1` and becomes the server.
const MOUNT: &str = r#"
dir=$1 image=$2 bytes=$3 kind=$4; shift 4
PATH=$PATH:/usr/sbin:/sbin
if [ "$kind" = ext4 ]
then mkfs.ext4 -q -F -m 0 "$image" && mount -o loop "$image" "$dir" || exit
else mount -t tmpfs -o "size=$bytes" tmpfs "$dir" || exit
fi
exec "$@"
"#;

/// A server on a small disk.
struct SmallDisk {
    server: Server,
    /// The disk, as this process sees it.
    root: PathBuf,
}

impl SmallDisk {
    /// A demo on it, with further arguments.
    fn start(scratch: &Path, args: &[&str]) -> Self {
        let (mount_point, image) = (scratch.join("disk"), scratch.join("image"));
        fs::create_dir(&mount_point).unwrap();
        fs::File::create(&image).unwrap().set_len(DISK_BYTES).unwrap();
        let kind = std::env::var("SLUICE_TEST_DISK").unwrap_or_else(|_| "ext4".to_owned());
        let data_dir = mount_point.join("data");
        let mut serve =
            sluice(["serve", "--demo", "--accept-file-system", "--listen", "127.0.0.1:0"]);
        serve.arg("--data-dir").arg(&data_dir).args(args);
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "sh", "-c", MOUNT, "sh"]).arg(&mount_point).arg(&image);
        command.args([&DISK_BYTES.to_string(), &kind]);
        command.arg(serve.get_program()).args(serve.get_args());
        for (name, value) in serve.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("SLUICE_FORMAT__SEGMENT_BYTES", SEGMENT_BYTES);
        command.env("SLUICE_PAYMENTS__SECRETS", provider::secrets());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let server = Server::of(command, &data_dir);
        let inside = mount_point.strip_prefix("/").unwrap();
        let process = Path::new("/proc").join(server.pid().to_string());
        let mounts = fs::read_to_string(process.join("mounts")).unwrap();
        let is_ours = |line: &&str| line.split(' ').nth(1) == mount_point.to_str();
        let mount = mounts.lines().find(is_ours).expect("it is mounted");
        assert_eq!(mount.split(' ').nth(2), Some(kind.as_str()), "{mount}");
        let root = process.join("root").join(inside);
        Self { server, root }
    }

    fn ballast(&self) -> PathBuf {
        self.root.join("ballast")
    }

    /// Takes what room is left.
    fn fill(&self) {
        let mut ballast =
            fs::OpenOptions::new().create(true).append(true).open(self.ballast()).unwrap();
        let mut piece = vec![0xBA; 1 << 20];
        while !piece.is_empty() {
            match ballast.write(&piece) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    piece.truncate(piece.len() / 2);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn buy(connection: &mut Connection, activity: u64, user: u64) -> Answer {
    let path = format!("/api/flashsales/{activity}/purchase");
    let body = json!({ "client_request_id": "once", "quantity": 1 });
    connection.call(("POST", &path), &token(user, "user"), Some(&body)).unwrap()
}

#[test]
fn a_full_disk_stops_purchases_alone_and_they_resume_when_there_is_room() {
    let scratch = scratch();
    let disk = SmallDisk::start(scratch.path(), &[]);
    let server = &disk.server;
    let activity = server.activity(&json!({ "stock": 100_000 }));
    let mut connection = Connection::new(server.address);
    let first = buy(&mut connection, activity, 1);
    assert_eq!(first.status, 202, "{first:?}");

    let second = buy(&mut connection, activity, 2);
    assert_eq!(second.status, 202, "{second:?}");

    disk.fill();
    let mut accepted = 2;
    let refused = loop {
        let answer = buy(&mut connection, activity, accepted + 1);
        if answer.status != 202 {
            break answer;
        }
        accepted += 1;
        assert!(accepted < PURCHASES_MAX, "the disk is full and purchases go on");
        // The orders' database and the snapshots give room back now and then.
        if accepted % 50 == 0 {
            disk.fill();
        }
    };
    assert_eq!((refused.status, refused.body["code"].as_str()), (503, Some("overloaded")));

    let order_no = first.body["order_no"].as_str().unwrap();
    let cancel = format!("/api/orders/{order_no}/cancel");
    assert_eq!(server.as_user(1, "POST", &cancel, None).status, 200, "a cancel goes on");
    let opened = provider::open(server, 2, &second.body["order_no"]);
    assert_eq!(opened.status, 201, "paying goes on: {opened:?}");
    let opened = opened.json();
    let amount = opened["amount"].as_u64().unwrap();
    let body = provider::body(opened["payment_no"].as_str().unwrap(), "t-1", amount, "paid");
    assert_eq!(provider::verdict(&provider::call_back(server, &body)), "accepted");
    for change in ["pause", "resume", "unpublish", "publish"] {
        let path = format!("/api/admin/flashsales/{activity}/{change}");
        assert_eq!(server.as_admin("POST", &path, None).status, 204, "{change} goes on");
    }
    assert_eq!(buy(&mut connection, activity, accepted + 1).status, 503, "still full");

    fs::remove_file(disk.ballast()).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while buy(&mut connection, activity, accepted + 1).status != 202 {
        assert!(Instant::now() < deadline, "purchases do not resume");
        std::thread::sleep(Duration::from_millis(20));
    }
    accepted += 1;
    let [total, available, locked, sold] = server.figures(activity);
    assert_eq!((total, available, locked, sold), (100_000, 99_999 - locked, accepted - 2, 1));
    let checked = loop {
        // Beside a running server the last frame counts once it is promised.
        let checked = books::check(&disk.root.join("data"), activity);
        if checked.reservations == accepted {
            break checked;
        }
        assert!(Instant::now() < deadline, "{checked:?}, not {accepted}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let [locked, sold, rolled_back] = [checked.locked, checked.sold, checked.rolled_back];
    assert_eq!([locked, sold, rolled_back], [accepted - 2, 1, 1]);
}

#[test]
fn a_disk_full_of_other_things_does_not_stop_a_sale_that_snapshots_make_room_for() {
    let scratch = scratch();
    // The orders lie elsewhere: what they have not got, the log would have to keep.
    let database = format!("sqlite:{}", scratch.path().join("orders.db").display());
    let disk = SmallDisk::start(scratch.path(), &["--database", &database]);
    let server = &disk.server;
    let activity = server.activity(&json!({ "stock": 100_000 }));
    let mut connection = Connection::new(server.address);
    let mut next_user = 1;
    let mut sell = |purchases: u64| {
        let last = next_user + purchases;
        let mut accepted = Instant::now();
        while next_user < last {
            let answer = buy(&mut connection, activity, next_user);
            if answer.status == 202 {
                (next_user, accepted) = (next_user + 1, Instant::now());
                continue;
            }
            assert_eq!(answer.body["code"], "overloaded", "{answer:?}");
            let state = || metrics(server, &["sluice_snapshot", "sluice_log_"]);
            assert!(accepted.elapsed() < PATIENCE, "stopped at {next_user}: {}", state());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    sell(6 * SEGMENT_PURCHASES);
    assert_eq!(snapshots_made(server), 0, "by its size none is due");
    disk.fill();
    // More than the spares that are there can take.
    sell(PURCHASES_MAX + 4 * SEGMENT_PURCHASES);
    assert!(snapshots_made(server) >= 2, "the log lives on what it gave back");
    let ballast = fs::metadata(disk.ballast()).unwrap().len();
    assert!(ballast > DISK_BYTES / 8, "the disk was full of other things: {ballast}");
    let sold = next_user - 1;
    let [total, available, locked, _] = server.figures(activity);
    assert_eq!((total, available, locked), (100_000, 100_000 - sold, sold));
}

/// Lines of the metrics whose names begin with one of `names`.
fn metrics(server: &Server, names: &[&str]) -> String {
    let text = server.call("GET", "/metrics", &[], "").body;
    let is_wanted = |line: &&str| names.iter().any(|name| line.starts_with(name));
    text.lines().filter(is_wanted).collect::<Vec<_>>().join(", ")
}

fn snapshots_made(server: &Server) -> u64 {
    let text = server.call("GET", "/metrics", &[], "").body;
    let line = text.lines().find_map(|line| line.strip_prefix("sluice_snapshots_made_total "));
    line.unwrap().parse().unwrap()
}
