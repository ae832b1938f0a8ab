//! What a request asks for: one table of commands, and who may give them.

use engine::core::ids::ActivityId;
use engine::{Busy, Engine};

use super::Port;
use super::access::Class;
use super::arguments::{self, Invalid};
use super::calls::Request;
use super::connection_commands as plain;
use super::functions::{self, Function, Invocation};
use super::gate;
use super::keys;
use super::render;
use super::reply::Reply;
use super::request::Words;
use super::session::Session;
use super::turn::{Answer, Turn};

/// A command by its name.
struct Command {
    name: &'static str,
    /// Words, the name among them.
    words_min: usize,
    words_max: usize,
    run: Run,
}

#[derive(Clone, Copy)]
enum Run {
    /// `FCALL`, `FCALL_RO`
    Function { read_only: bool },
    /// Of compatibility keys.
    Key(keys::Question),
    /// `MGET`
    Keys,
    /// `EXISTS`
    Exists,
    /// What needs no engine, and a user who is known.
    Plain(plain::Plain),
    /// What needs not even that.
    Open(plain::Plain),
}

const ANY: usize = usize::MAX;

const fn command(name: &'static str, words: (usize, usize), run: Run) -> Command {
    Command { name, words_min: words.0, words_max: words.1, run }
}

/// Every command, the one that a sale is made of first.
const COMMANDS: &[Command] = &[
    command("FCALL", (3, ANY), Run::Function { read_only: false }),
    command("FCALL_RO", (3, ANY), Run::Function { read_only: true }),
    command("WAITAOF", (4, 4), Run::Plain(plain::wait_aof)),
    command("GET", (2, 2), Run::Key(keys::Question::Get)),
    command("MGET", (2, ANY), Run::Keys),
    command("EXISTS", (2, ANY), Run::Exists),
    command("TTL", (2, 2), Run::Key(keys::Question::Ttl)),
    command("PTTL", (2, 2), Run::Key(keys::Question::Pttl)),
    command("TYPE", (2, 2), Run::Key(keys::Question::Type)),
    command("PING", (1, 2), Run::Plain(plain::ping)),
    command("ECHO", (2, 2), Run::Plain(plain::echo)),
    command("SELECT", (2, 2), Run::Plain(plain::select)),
    command("CLIENT", (2, ANY), Run::Plain(plain::client)),
    command("COMMAND", (1, ANY), Run::Plain(plain::command)),
    command("CONFIG", (2, ANY), Run::Plain(plain::config)),
    command("INFO", (1, ANY), Run::Plain(plain::info)),
    command("CLUSTER", (1, ANY), Run::Plain(plain::cluster)),
    command("FUNCTION", (2, ANY), Run::Plain(plain::function)),
    command("HELLO", (1, ANY), Run::Open(plain::hello)),
    command("AUTH", (2, 3), Run::Open(plain::auth)),
    command("QUIT", (1, ANY), Run::Open(plain::quit)),
    command("RESET", (1, 1), Run::Open(plain::reset)),
];

/// The names of all commands.
pub(super) fn names() -> impl ExactSizeIterator<Item = &'static str> {
    COMMANDS.iter().map(|command| command.name)
}

/// Does what `words` ask, and adds what is answered to `turn`.
pub(super) fn dispatch(
    port: &Port,
    engine: Option<&Engine>,
    turn: &mut Turn,
    session: &mut Session,
    words: Words<'_>,
) {
    let name = words.at(0);
    let found = COMMANDS.iter().find(|it| arguments::is_name(it.name, name));
    let Some(command) = found else { return unknown(turn, session, words) };
    if !(command.words_min..=command.words_max).contains(&words.len()) {
        return turn.write(session.address(), |reply| wrong_count(command.name, reply));
    }
    if let Run::Open(run) = command.run {
        return run(port, turn, session, words);
    }
    let Some((_, class)) = session.who() else {
        return turn.write(session.address(), |it| it.error("NOAUTH Authentication required."));
    };
    let done = match command.run {
        Run::Plain(run) | Run::Open(run) => {
            run(port, turn, session, words);
            Ok(())
        }
        Run::Function { read_only } => call(port, engine, turn, session, (words, read_only, class)),
        Run::Key(question) => key(engine, turn, session, words.at(1), question),
        Run::Keys => mget(engine, turn, session, words.skip(1)),
        Run::Exists => exists(engine, turn, session, words.skip(1)),
    };
    if let Err(error) = done {
        turn.write(session.address(), |reply| error.write(reply));
    }
}

/// Why a command is answered with an error, at once.
enum Refusal {
    Recovering,
    Busy(Busy),
    Invalid(Invalid),
    Call(functions::CallError),
    Closed(gate::Closed),
    NoPermission(&'static str),
}

impl Refusal {
    fn write(self, reply: &mut Reply<'_>) {
        match self {
            Self::Recovering => {
                reply.error("RECOVERING the server is reading its log; nothing was reserved");
            }
            Self::Busy(busy) => render::busy(busy, reply),
            Self::Invalid(invalid) => reply.error_of(format_args!("INVALID {invalid}")),
            Self::Call(error) => reply.error_of(format_args!("{error}")),
            Self::Closed(closed) => reply.error_of(format_args!("{closed}")),
            Self::NoPermission(name) => {
                let text = format_args!("NOPERM this user has no permissions to call '{name}'");
                reply.error_of(text);
            }
        }
    }
}

impl From<Busy> for Refusal {
    fn from(busy: Busy) -> Self {
        Self::Busy(busy)
    }
}

impl From<gate::Closed> for Refusal {
    fn from(closed: gate::Closed) -> Self {
        Self::Closed(closed)
    }
}

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

fn unknown(turn: &mut Turn, session: &mut Session, words: Words<'_>) {
    let name = words.at(0);
    // A browser that was made to speak to this port: none of the rest is meant for us.
    if [&b"POST"[..], b"HOST:"].iter().any(|it| it.eq_ignore_ascii_case(name)) {
        session.is_ending = true;
        return;
    }
    const SHOWN_BYTES: usize = 128;
    let shown = |word: &[u8]| word[..word.len().min(SHOWN_BYTES)].escape_ascii().to_string();
    let mut begin = String::new();
    for word in words.skip(1).iter() {
        if begin.len() >= SHOWN_BYTES {
            break;
        }
        begin += &format!("'{}' ", shown(word));
    }
    let name = shown(name);
    turn.write(session.address(), |reply| {
        reply.error_of(format_args!(
            "ERR unknown command '{name}', with args beginning with: {begin}"
        ));
    });
}

pub(super) fn wrong_count(name: &str, reply: &mut Reply<'_>) {
    let name = name.to_ascii_lowercase();
    reply.error_of(format_args!("ERR wrong number of arguments for '{name}' command"));
}

fn call(
    port: &Port,
    engine: Option<&Engine>,
    turn: &mut Turn,
    session: &Session,
    (words, read_only, class): (Words<'_>, bool, Class),
) -> Result<(), Refusal> {
    let invocation = functions::invocation(words, read_only).map_err(Refusal::Call)?;
    if class == Class::Buyer && invocation.signature.class == Class::Admin {
        return Err(Refusal::NoPermission(invocation.signature.name));
    }
    let activity = arguments::activity(invocation.activity)?;
    if invocation.signature.function == Function::Reserve {
        return reserve(port, engine, turn, session, activity, &invocation);
    }
    let request = Request::read(&invocation, session.who().map_or("", |(name, _)| name))?;
    let at_ms = instant(port, &invocation)?;
    let engine = engine.ok_or(Refusal::Recovering)?;
    // What came before in this turn happens before.
    turn.decide(engine);
    let dated;
    let engine = match at_ms {
        None => engine,
        Some(at_ms) => {
            dated = engine.at(at_ms);
            &dated
        }
    };
    let answer = request.ask(engine, activity)?;
    // Looked at afterwards, as with purchases: of what is archived nothing was changed.
    let archived = engine.archived(activity).and_then(|it| request.about_archived(it.id));
    turn.hold(session.address(), archived.map_or(answer, Answer::Archived));
    Ok(())
}

/// The instant that the caller gave, where it is to be honoured. Its shape is looked at in any
/// case.
fn instant(port: &Port, invocation: &Invocation<'_>) -> Result<Option<u64>, Invalid> {
    let now_ms = invocation.now_ms.map(|word| arguments::instant(word, "now_ms")).transpose()?;
    Ok(now_ms.filter(|_| port.test_clock))
}

fn reserve(
    port: &Port,
    engine: Option<&Engine>,
    turn: &mut Turn,
    session: &Session,
    activity: ActivityId,
    invocation: &Invocation<'_>,
) -> Result<(), Refusal> {
    let words = invocation.arguments;
    let user = arguments::user(words.at(0))?;
    let request_id = arguments::text(words.at(1), "request_id")?;
    let quantity = arguments::units(words.at(2), "quantity")?;
    let at_ms = instant(port, invocation)?;
    let engine = engine.ok_or(Refusal::Recovering)?;
    let purchase = (user, request_id, quantity);
    gate::pass(port, engine, turn, session, activity, purchase)?;
    turn.purchase(session.address(), engine, (activity, at_ms), purchase);
    Ok(())
}

fn key(
    engine: Option<&Engine>,
    turn: &mut Turn,
    session: &Session,
    name: &[u8],
    question: keys::Question,
) -> Result<(), Refusal> {
    let engine = engine.ok_or(Refusal::Recovering)?;
    turn.decide(engine);
    match keys::look(engine, name)? {
        Some(pending) => turn.hold(session.address(), Answer::Key { pending, question }),
        None => turn.write(session.address(), |reply| keys::answer(question, None, 0, reply)),
    }
    Ok(())
}

fn mget(
    engine: Option<&Engine>,
    turn: &mut Turn,
    session: &Session,
    names: Words<'_>,
) -> Result<(), Refusal> {
    if engine.is_none_or(Engine::is_poisoned) {
        let busy = Refusal::Busy(Busy::LogUnavailable);
        return Err(if engine.is_none() { Refusal::Recovering } else { busy });
    }
    turn.write(session.address(), |reply| reply.array(names.len()));
    for name in names.iter() {
        // One that fails in between is an error in its place.
        if let Err(error) = key(engine, turn, session, name, keys::Question::Get) {
            turn.write(session.address(), |reply| error.write(reply));
        }
    }
    Ok(())
}

/// Counted at once, since the answer is one number of many looks.
fn exists(
    engine: Option<&Engine>,
    turn: &mut Turn,
    session: &Session,
    names: Words<'_>,
) -> Result<(), Refusal> {
    let engine = engine.ok_or(Refusal::Recovering)?;
    turn.decide(engine);
    let mut count = 0;
    for name in names.iter() {
        if let Some(pending) = keys::look(engine, name)? {
            let found = engine.commit_until(pending).map_err(|_| Busy::LogUnavailable)?;
            count += u64::from(found.is_some());
        }
    }
    turn.write(session.address(), |reply| reply.unsigned(count));
    Ok(())
}
