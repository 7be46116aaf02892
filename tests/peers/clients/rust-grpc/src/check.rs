//! What is sent and what must arrive: options, sample messages and the report.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocketmq::model::message::MessageView;
use serde_json::json;

/// The command line: ACTION N --name value ...
pub struct Options {
    pub action: String,
    pub count: usize,
    values: HashMap<String, String>,
}

impl Options {
    pub fn parse() -> Options {
        let words: Vec<String> = std::env::args().skip(1).collect();
        if words.len() < 2 {
            eprintln!("usage: ACTION N --endpoint HOST:PORT --topic T [--option value]");
            std::process::exit(2);
        }
        let mut values = HashMap::new();
        let mut rest = words[2..].iter().peekable();
        while let Some(name) = rest.next() {
            let value = rest.next_if(|next| !next.starts_with("--")).map_or("true", String::as_str);
            values.insert(name.trim_start_matches('-').to_string(), value.to_string());
        }
        Options { action: words[0].clone(), count: words[1].parse().unwrap_or(0), values }
    }

    pub fn get<'a>(&'a self, name: &str, otherwise: &'a str) -> &'a str {
        self.values.get(name).map_or(otherwise, String::as_str)
    }

    pub fn number(&self, name: &str, otherwise: u64) -> u64 {
        self.values.get(name).and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    }

    pub fn topic(&self) -> &str {
        self.get("topic", "peers-normal")
    }

    pub fn group(&self) -> &str {
        self.get("group", "peers-group")
    }

    pub fn kind(&self) -> &str {
        self.get("kind", "normal")
    }

    pub fn run(&self) -> &str {
        self.get("run", "run")
    }

    pub fn transactional(&self) -> bool {
        self.kind().starts_with("transaction")
    }

    pub fn size(&self) -> usize {
        let default = if self.kind() == "compressed" { 20 << 10 } else { 256 };
        self.number("size", default) as usize
    }

    pub fn delay(&self) -> u64 {
        self.number("delay", 3000)
    }

    /// Whether the message of this number must arrive, rather than must not.
    pub fn expects(&self, index: usize) -> bool {
        match self.kind() {
            "tags" => index % 3 != 1,
            "sql" => (3..=7).contains(&index),
            _ => true,
        }
    }

    /// Extra messages, after the counted ones, whose transaction is rolled back.
    pub fn rolled_back(&self) -> usize {
        match self.kind() {
            "transaction" | "transaction-recovery" => 1 + self.count / 10,
            _ => 0,
        }
    }
}

/// The message that every client sends for a given run and index.
pub struct Sample {
    pub body: Vec<u8>,
    pub tag: String,
    pub keys: Vec<String>,
    pub properties: HashMap<String, String>,
    pub group: String,
}

impl Sample {
    pub fn new(run: &str, index: usize, size: usize) -> Sample {
        let mut body = format!("{run}/{index}/").into_bytes();
        body.extend((0..size).map(|i| (index + i) as u8));
        let properties = [("run", run), ("index", &index.to_string()), ("note", "snow \u{2603} \u{e9}")];
        Sample {
            body,
            tag: format!("tag{}", index % 3),
            keys: vec![format!("{run}-{index}"), format!("all-{run}")],
            properties: properties.map(|(key, value)| (key.to_string(), value.to_string())).into(),
            group: format!("{run}-g{}", index % 2),
        }
    }
}

/// The number of a message of this run.
pub fn index_of(message: &MessageView, run: &str) -> Option<usize> {
    let properties = message.properties();
    if properties.get("run").map(String::as_str) != Some(run) {
        return None;
    }
    properties.get("index")?.parse().ok()
}

fn now_millis() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as i64)
}

/// Compares what arrives with what was sent.
pub struct Report {
    began: Instant,
    missing: BTreeSet<usize>,
    unseen: BTreeSet<String>,
    last_of_group: HashMap<String, usize>,
    wrong: Vec<String>,
    extra_properties: BTreeSet<String>,
    pub sent: usize,
    received: usize,
    duplicates: usize,
    pub error: String,
    pub receive_error: String,
    took: Option<Duration>,
}

impl Report {
    pub fn new(options: &Options) -> Report {
        let receives = options.action != "produce" && options.action != "half";
        let expected = (0..options.count).filter(|index| receives && options.expects(*index));
        Report {
            began: Instant::now(),
            missing: expected.collect(),
            unseen: BTreeSet::new(),
            last_of_group: HashMap::new(),
            wrong: Vec::new(),
            extra_properties: BTreeSet::new(),
            sent: 0,
            received: 0,
            duplicates: 0,
            error: String::new(),
            receive_error: String::new(),
            took: None,
        }
    }

    /// Something besides the messages that must be seen.
    pub fn expect(&mut self, fact: String) {
        self.unseen.insert(fact);
    }

    pub fn seen(&mut self, fact: &str) {
        self.unseen.remove(fact);
    }

    pub fn complete(&self) -> bool {
        self.missing.is_empty() && self.unseen.is_empty()
    }

    pub fn settled(&mut self) {
        self.took = Some(self.began.elapsed());
    }

    /// Judge one received message; those of other runs are not ours.
    pub fn take(&mut self, options: &Options, message: &MessageView) {
        let Some(index) = index_of(message, options.run()) else { return };
        self.received += 1;
        if index >= options.count || !options.expects(index) {
            self.wrong.push(format!("a message that must not arrive did: {index}"));
            return;
        }
        let again = !self.missing.remove(&index);
        self.duplicates += again as usize;
        let sample = Sample::new(options.run(), index, options.size());
        self.compare(index, "body", message.body() == sample.body, format!("{} bytes", message.body().len()));
        self.compare(index, "tag", message.tag() == Some(&sample.tag), format!("{:?}", message.tag()));
        let keys = |keys: &[String]| keys.iter().cloned().collect::<BTreeSet<_>>();
        self.compare(index, "keys", keys(message.keys()) == keys(&sample.keys), format!("{:?}", message.keys()));
        for (key, value) in &sample.properties {
            let got = message.properties().get(key);
            self.compare(index, key, got == Some(value), format!("{got:?}"));
        }
        let extra = message.properties().keys().filter(|key| !sample.properties.contains_key(*key));
        self.extra_properties.extend(extra.cloned());
        self.check_origin(options, index, message);
        if options.kind() == "fifo" {
            let group = message.message_group();
            self.compare(index, "message group", group == Some(&sample.group), format!("{group:?}"));
            if !again {
                let last = self.last_of_group.insert(sample.group, index);
                self.compare(index, "order", last.is_none_or(|last| last < index), format!("after {last:?}"));
            }
        }
    }

    /// What the server adds: the delivery attempt, and when and where the message was born.
    fn check_origin(&mut self, options: &Options, index: usize, message: &MessageView) {
        let attempt = message.delivery_attempt();
        self.compare(index, "delivery attempt", attempt == 1, attempt.to_string());
        self.compare(index, "born host", !message.born_host().is_empty(), String::new());
        let age = now_millis() - message.born_timestamp() * 1000;
        self.compare(index, "age", (-1000..600_000).contains(&age), age.to_string());
        if options.kind() == "delay" {
            // The broker's timer works in whole seconds.
            self.compare(index, "delay", age >= options.delay() as i64 - 1000, age.to_string());
        }
    }

    fn compare(&mut self, index: usize, what: &str, same: bool, got: String) {
        if !same {
            self.wrong.push(format!("{index} {what}: {got}"));
        }
    }

    /// Print the JSON line; return the exit code.
    pub fn print(&self, options: &Options) -> i32 {
        let sends = options.action == "produce" || options.action == "roundtrip";
        let ok = self.error.is_empty()
            && self.complete()
            && self.wrong.is_empty()
            && self.duplicates == 0
            && (!sends || self.sent == options.count + options.rolled_back());
        let seconds = self.took.unwrap_or_else(|| self.began.elapsed()).as_secs_f64();
        let line = json!({
            "client": "rust-grpc", "action": options.action, "kind": options.kind(), "mode": "simple", "ok": ok,
            "sent": self.sent, "received": self.received, "duplicates": self.duplicates,
            "missing": self.missing.len(),
            "unseen": self.unseen.iter().cloned().collect::<Vec<_>>().join(", "),
            "wrong": self.wrong.len(), "first_wrong": self.wrong.first().cloned().unwrap_or_default(),
            "extra_properties": self.extra_properties, "error": self.error,
            "receive_error": self.receive_error, "seconds": (seconds * 100.0).round() / 100.0,
        });
        println!("{line}");
        if ok { 0 } else { 1 }
    }
}
