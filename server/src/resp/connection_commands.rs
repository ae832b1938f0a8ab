//! Commands that need no engine: what real clients say before and beside their calls.

use super::Port;
use super::access::DEFAULT_USER;
use super::commands::{self, wrong_count};
use super::functions::SIGNATURES;
use super::reply::{Protocol, Reply};
use super::request::Words;
use super::session::Session;
use super::turn::Turn;

/// A command of this file.
pub(super) type Plain = fn(&Port, &mut Turn, &mut Session, Words<'_>);

/// The version of Redis whose commands these are, for clients that look: functions, `WAITAOF`.
const REDIS_VERSION: &str = "7.2.4";

/// Bytes of a name that a client gives itself.
const NAME_BYTES_MAX: usize = 64;

const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const SYNTAX: &str = "ERR syntax error";
const NOT_A_NUMBER: &str = "ERR value is not an integer or out of range";

fn is(word: &[u8], text: &str) -> bool {
    word.eq_ignore_ascii_case(text.as_bytes())
}

fn integer(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// `PING [message]`
pub(super) fn ping(_: &Port, turn: &mut Turn, session: &mut Session, words: Words<'_>) {
    turn.write(session.address(), |reply| match words.len() {
        1 => reply.simple("PONG"),
        _ => reply.bulk(words.at(1)),
    });
}

/// `ECHO message`
pub(super) fn echo(_: &Port, turn: &mut Turn, session: &mut Session, words: Words<'_>) {
    turn.write(session.address(), |reply| reply.bulk(words.at(1)));
}

/// `SELECT index`: there is one database.
pub(super) fn select(_: &Port, turn: &mut Turn, session: &mut Session, words: Words<'_>) {
    turn.write(session.address(), |reply| match integer(words.at(1)) {
        Some(0) => reply.simple("OK"),
        Some(_) => reply.error("ERR DB index is out of range"),
        None => reply.error(NOT_A_NUMBER),
    });
}

/// `WAITAOF numlocal numreplicas timeout`: whatever was answered before is on disk already, and
/// there are no replicas to wait for.
pub(super) fn wait_aof(_: &Port, turn: &mut Turn, session: &mut Session, words: Words<'_>) {
    let numbers = [1, 2, 3].map(|index| integer(words.at(index)));
    turn.write(session.address(), |reply| match numbers {
        [Some(0..=1), Some(0..), Some(0..)] => {
            reply.array(2);
            reply.integer(1);
            reply.integer(0);
        }
        [Some(_), Some(_), Some(_)] => reply.error("ERR value is out of range"),
        _ => reply.error(NOT_A_NUMBER),
    });
}

/// `QUIT`
pub(super) fn quit(_: &Port, turn: &mut Turn, session: &mut Session, _: Words<'_>) {
    session.is_ending = true;
    turn.write(session.address(), |reply| reply.simple("OK"));
}

/// `RESET`: the connection is as new.
pub(super) fn reset(port: &Port, turn: &mut Turn, session: &mut Session, _: Words<'_>) {
    session.reset(&port.users);
    turn.write(session.address(), |reply| reply.simple("RESET"));
}

/// `AUTH [user] password`
pub(super) fn auth(port: &Port, turn: &mut Turn, session: &mut Session, words: Words<'_>) {
    let (name, password) = match words.len() {
        2 => (DEFAULT_USER.as_bytes(), words.at(1)),
        _ => (words.at(1), words.at(2)),
    };
    let error = match session.authenticate(&port.users, name, password) {
        Ok(()) => None,
        Err(_) if port.users.is_empty() && words.len() == 2 => Some(
            "ERR AUTH <password> called without any password configured for the default user. Are \
             you sure your configuration is correct?",
        ),
        Err(_) => Some(WRONG_PASS),
    };
    turn.write(session.address(), |reply| match error {
        None => reply.simple("OK"),
        Some(text) => reply.error(text),
    });
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`
pub(super) fn hello(port: &Port, turn: &mut Turn, session: &mut Session, words: Words<'_>) {
    match greet(port, session, words) {
        Err(text) => turn.write(session.address(), |reply| reply.error(text)),
        Ok(()) => {
            let (id, protocol) = (session.id, session.protocol);
            turn.write(session.address(), |reply| {
                reply.map(7);
                for (name, value) in [("server", "sluice"), ("version", REDIS_VERSION)] {
                    reply.text(name);
                    reply.text(value);
                }
                for (name, value) in [("proto", protocol.number()), ("id", id)] {
                    reply.text(name);
                    reply.unsigned(value);
                }
                for (name, value) in [("mode", "standalone"), ("role", "master")] {
                    reply.text(name);
                    reply.text(value);
                }
                reply.text("modules");
                reply.array(0);
            });
        }
    }
}

/// Takes over what a `HELLO` says, all of it or nothing.
fn greet(port: &Port, session: &mut Session, words: Words<'_>) -> Result<(), &'static str> {
    let protocol = match words.len() {
        1 => session.protocol,
        _ => match integer(words.at(1)) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err("NOPROTO unsupported protocol version"),
            None => return Err("ERR Protocol version is not an integer or out of range"),
        },
    };
    let mut options = words.skip(2);
    let (mut password, mut name) = (None, None);
    while options.len() > 0 {
        let taken = match options.len() {
            3.. if is(options.at(0), "AUTH") => {
                password = Some((options.at(1), options.at(2)));
                3
            }
            2.. if is(options.at(0), "SETNAME") => {
                name = Some(client_name(options.at(1))?);
                2
            }
            _ => return Err("ERR Syntax error in HELLO option"),
        };
        options = options.skip(taken);
    }
    if let Some((user, password)) = password {
        session.authenticate(&port.users, user, password).map_err(|_| WRONG_PASS)?;
    }
    if session.who().is_none() {
        return Err(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise \
             the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client \
             and select the RESP protocol version at the same time",
        );
    }
    if let Some(name) = name {
        session.name = name;
    }
    session.protocol = protocol;
    Ok(())
}

fn client_name(word: &[u8]) -> Result<String, &'static str> {
    let plain = word.iter().all(|byte| (b'!'..=b'~').contains(byte));
    match std::str::from_utf8(word) {
        Ok(name) if plain && name.len() <= NAME_BYTES_MAX => Ok(name.to_owned()),
        _ => Err("ERR Client names cannot contain spaces, newlines or special characters, and \
             have at most 64 bytes."),
    }
}

/// `CLIENT` and what clients say of themselves.
pub(super) fn client(_: &Port, turn: &mut Turn, session: &mut Session, words: Words<'_>) {
    let sub = words.at(1);
    if is(sub, "SETNAME") && words.len() == 3 {
        let named = client_name(words.at(2)).map(|name| session.name = name);
        return turn.write(session.address(), |reply| match named {
            Ok(()) => reply.simple("OK"),
            Err(text) => reply.error(text),
        });
    }
    let (id, name, protocol) = (session.id, session.name.as_str(), session.protocol.number());
    let user = session.who().map_or("", |(name, _)| name);
    turn.write(session.address(), |reply| match words.len() {
        4 if is(sub, "SETINFO") => reply.simple("OK"),
        3 if is(sub, "NO-EVICT") || is(sub, "NO-TOUCH") => reply.simple("OK"),
        2 if is(sub, "ID") => reply.unsigned(id),
        2 if is(sub, "GETNAME") && name.is_empty() => reply.null(),
        2 if is(sub, "GETNAME") => reply.text(name),
        2 if is(sub, "INFO") || is(sub, "LIST") => {
            reply.text(&format!("id={id} name={name} user={user} resp={protocol}\n"));
        }
        _ => unknown_subcommand("CLIENT", sub, reply),
    });
}

fn unknown_subcommand(command: &str, sub: &[u8], reply: &mut Reply<'_>) {
    let sub = sub[..sub.len().min(NAME_BYTES_MAX)].escape_ascii();
    reply.error_of(format_args!(
        "ERR unknown subcommand or wrong number of arguments for '{sub}' of {command}"
    ));
}

/// `COMMAND`: clients that look for one find nothing about it, and do without.
pub(super) fn command(_: &Port, turn: &mut Turn, session: &mut Session, words: Words<'_>) {
    turn.write(session.address(), |reply| match words.at(1) {
        [] => reply.array(0),
        sub if is(sub, "COUNT") => reply.unsigned(commands::names().len() as u64),
        sub if is(sub, "DOCS") => reply.map(0),
        sub if is(sub, "LIST") => {
            reply.array(commands::names().len());
            commands::names().for_each(|name| reply.text(&name.to_ascii_lowercase()));
        }
        sub if is(sub, "INFO") => {
            reply.array(words.len() - 2);
            words.skip(2).iter().for_each(|_| reply.null());
        }
        sub => unknown_subcommand("COMMAND", sub, reply),
    });
}

/// What `CONFIG GET` tells: what benchmark tools and careful clients ask about.
const CONFIG: &[(&str, &str)] = &[
    ("appendfsync", "always"),
    ("appendonly", "yes"),
    ("databases", "1"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("save", ""),
];

/// `CONFIG GET name ..`
pub(super) fn config(_: &Port, turn: &mut Turn, session: &mut Session, words: Words<'_>) {
    let asked = |name: &&(&str, &str)| {
        words.skip(2).iter().any(|pattern| pattern == b"*" || is(pattern, name.0))
    };
    turn.write(session.address(), |reply| match (words.at(1), words.len()) {
        (sub, 3..) if is(sub, "GET") => {
            reply.map(CONFIG.iter().filter(asked).count());
            for (name, value) in CONFIG.iter().filter(asked) {
                reply.text(name);
                reply.text(value);
            }
        }
        (sub, 2) if is(sub, "GET") => wrong_count("config|get", reply),
        (sub, _) => unknown_subcommand("CONFIG", sub, reply),
    });
}

/// `INFO [section ..]`: one text, whichever sections are asked for.
pub(super) fn info(port: &Port, turn: &mut Turn, session: &mut Session, _: Words<'_>) {
    let (version, process) = (env!("CARGO_PKG_VERSION"), std::process::id());
    let uptime = port.started.elapsed().as_secs();
    let open = port.counts.open.load(std::sync::atomic::Ordering::Relaxed);
    let accepted = port.counts.accepted.load(std::sync::atomic::Ordering::Relaxed);
    let turned_away = port.counts.turned_away.load(std::sync::atomic::Ordering::Relaxed);
    let loading = u8::from(port.shared.app().is_err());
    let text = format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nserver_name:sluice\r\n\
         sluice_version:{version}\r\nredis_mode:standalone\r\nprocess_id:{process}\r\n\
         uptime_in_seconds:{uptime}\r\n\r\n\
         # Clients\r\nconnected_clients:{open}\r\nmaxclients:{}\r\n\r\n\
         # Persistence\r\nloading:{loading}\r\naof_enabled:1\r\n\r\n\
         # Stats\r\ntotal_connections_received:{accepted}\r\n\
         rejected_connections:{turned_away}\r\n\r\n\
         # Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n\
         # Cluster\r\ncluster_enabled:0\r\n",
        port.connections_max
    );
    turn.write(session.address(), |reply| reply.text(&text));
}

/// `CLUSTER`
pub(super) fn cluster(_: &Port, turn: &mut Turn, session: &mut Session, _: Words<'_>) {
    turn.write(session.address(), |reply| {
        reply.error("ERR This instance has cluster support disabled");
    });
}

/// `FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]`: the library is built in.
pub(super) fn function(_: &Port, turn: &mut Turn, session: &mut Session, words: Words<'_>) {
    let asked = library_asked(words);
    turn.write(session.address(), |reply| match asked {
        _ if !is(words.at(1), "LIST") => unknown_subcommand("FUNCTION", words.at(1), reply),
        None => reply.error(SYNTAX),
        Some(false) => reply.array(0),
        Some(true) => {
            reply.array(1);
            reply.map(3);
            for (name, value) in [("library_name", "sluice"), ("engine", "SLUICE")] {
                reply.text(name);
                reply.text(value);
            }
            reply.text("functions");
            reply.array(SIGNATURES.len());
            for signature in SIGNATURES {
                reply.map(3);
                reply.text("name");
                reply.text(signature.name);
                reply.text("description");
                reply.null();
                reply.text("flags");
                let flags: &[&str] =
                    if signature.writes { &["no-cluster"] } else { &["no-cluster", "no-writes"] };
                reply.set(flags.len());
                flags.iter().for_each(|flag| reply.text(flag));
            }
        }
    });
}

/// Whether our library is among those asked for; `None` where the words are no question.
fn library_asked(words: Words<'_>) -> Option<bool> {
    let mut options = words.skip(2);
    let mut asked = true;
    while options.len() > 0 {
        let taken = match options.len() {
            _ if is(options.at(0), "WITHCODE") => 1,
            2.. if is(options.at(0), "LIBRARYNAME") => {
                let pattern = options.at(1);
                asked = pattern == b"*" || pattern == b"sluice" || pattern == b"sluice*";
                2
            }
            _ => return None,
        };
        options = options.skip(taken);
    }
    Some(asked)
}
