//! Clients that ask as fast as they are answered, in a process of their own.
//!
//! It has a lower priority than the others: on few cores the server and the client that is measured go first, and what is left is
//! theirs. They would otherwise take from that client what they are meant to take from the server. For the same reason they throw
//! away what they get, which costs them less than it costs the server.

use std::io::BufRead as _;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use croft_testkit::{Call, Client, Croft, Protocol};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// What this program is called with to be the crowd.
pub(crate) const ARGUMENT: &str = "crowd";

/// How often they were answered so far, and how often that was a refusal (429).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answers {
    pub(crate) served: u64,
    pub(crate) refused: u64,
}

/// The crowd, seen from outside. It goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Crowd {
    _process: Child,
    questions: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Crowd {
    /// `clients` for each of the tokens, which is one account, and one connection.
    pub(crate) async fn start(
        croft: &Croft,
        tokens: &[String],
        clients: usize,
        path: &str,
        accept: &str,
    ) -> Result<Self> {
        let mut command = Command::new("nice");
        command.args(["-n", "10"]).arg(std::env::current_exe()?).arg(ARGUMENT);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().context("start the crowd")?;
        let mut questions = process.stdin.take().context("a pipe")?;
        let answers = BufReader::new(process.stdout.take().context("a pipe")?).lines();
        let what = json!({"url": croft.url, "ca": croft.ca_pem, "tokens": tokens, "clients": clients, "path": path, "accept": accept});
        questions.write_all(format!("{what}\n").as_bytes()).await?;
        Ok(Self { _process: process, questions, answers })
    }

    pub(crate) async fn answers(&mut self) -> Result<Answers> {
        self.questions.write_all(b"\n").await?;
        let line = self.answers.next_line().await?.context("the crowd has gone")?;
        let (served, refused) = line.split_once(' ').context("two numbers")?;
        Ok(Answers { served: served.parse()?, refused: refused.parse()? })
    }
}

/// Is the crowd: reads what to ask for from standard input, and tells the answers so far for each further line, until there are no
/// more. It needs a runtime with several threads, and blocks the one that it is called on.
pub(crate) fn be() -> Result<()> {
    let mut lines = std::io::stdin().lock().lines();
    let what: Value = serde_json::from_str(&lines.next().context("what to ask for")??)?;
    let text = |field: &str| what[field].as_str().unwrap_or_default().to_owned();
    let (url, ca) = (text("url"), text("ca"));
    let call = Call::new(Method::GET, &text("path")).header("accept", &text("accept"));
    let tokens: Vec<String> = serde_json::from_value(what["tokens"].clone())?;
    let clients = what["clients"].as_u64().context("a number")?;
    let (served, refused, failed) = (counter(), counter(), counter());
    for token in tokens {
        let client = Client::trusting(&url, &ca, Protocol::Http2)?.with_bearer(&token);
        for _ in 0..clients {
            let (client, call) = (client.clone(), call.clone());
            let (served, refused, failed) = (Arc::clone(&served), Arc::clone(&refused), Arc::clone(&failed));
            tokio::spawn(async move {
                // Refused or not, it asks again at once.
                loop {
                    let counter = match ask(&client, call.clone()).await {
                        Ok(200) => &served,
                        Ok(429) => &refused,
                        _ => &failed,
                    };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }
    for line in lines {
        line?;
        ensure!(failed.load(Ordering::Relaxed) == 0, "some got neither a list nor a 429");
        println!("{} {}", served.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
    }
    Ok(())
}

/// The status of the answer, once all of it has come.
async fn ask(client: &Client, call: Call) -> Result<u16> {
    let answer = client.open(call).await?;
    let status = answer.status;
    answer.discard().await?;
    Ok(status)
}

fn counter() -> Arc<AtomicU64> {
    Arc::new(AtomicU64::new(0))
}
