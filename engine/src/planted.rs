//! Known faults of the engine, for a campaign that must catch each of them: see [`wal::planted`],
//! which knows those of the log.

wal::planted_bugs! {
    AnsweredBeforeDurable = "Tells an answer before what it rests on is durable.";
    RefusedBeforeDurable = "Tells a refusal before what it rests on is durable.";
    ReplayedAtAnotherTime = "Lets a replayed event happen at another time than it did.";
    RequestForgottenInReplay = "Forgets in replay which request made a reservation.";
    LimitKeptOnRestore = "Counts units that were given back against their buyer's limit.";
    TimedOutEarly = "Gives units back when half of the time to pay is over.";
    OrderedAheadOfSql = "Shows one reservation more as ordered than SQL holds.";
}
