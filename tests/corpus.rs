//! The corpus against Croft, on both stores, with the answers that the reference gave.

use std::fmt::Write as _;

use croft_e2e::runner::{self, KnownDifferences, diff};
use croft_testkit::{Server, ServerKind};
use futures::StreamExt as _;
use serde_json::Value;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded() {
    answers_as_the_reference_does(ServerKind::Embedded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd() {
    answers_as_the_reference_does(ServerKind::Etcd).await;
}

/// The stored expectations are what the reference says today: an outdated one is as wrong as a wrong server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reference() {
    answers_as_the_reference_does(ServerKind::Reference).await;
}

async fn answers_as_the_reference_does(kind: ServerKind) {
    if !kind.wanted() {
        return;
    }
    let server = Server::start(kind).await.expect("the server starts");
    let known = KnownDifferences::load().expect("the known differences load");
    let scenarios = runner::load_corpus().expect("the corpus loads");
    let runnable = scenarios.iter().filter(|s| server.has_controllers() || !s.controllers);
    let played = futures::stream::iter(runnable)
        .map(|scenario| {
            let server = &server;
            async move { (scenario, runner::play(server, scenario).await) }
        })
        .buffered(4)
        .collect::<Vec<_>>()
        .await;
    let (mut report, mut steps, mut wrong) = (String::new(), 0, 0);
    for (scenario, played) in played {
        let expected = runner::load_expected(scenario).expect("expectations were recorded");
        let played = match played {
            Ok(played) => played,
            Err(error) => {
                wrong += 1;
                let _ = writeln!(report, "{}: {error:#}", scenario.name);
                continue;
            }
        };
        for step in &scenario.steps {
            steps += 1;
            let nothing = Value::Null;
            let (e, a) = (expected.steps.get(&step.name), played.steps.get(&step.name));
            let differences = diff(e.unwrap_or(&nothing), a.unwrap_or(&nothing));
            let unexplained = differences
                .iter()
                .filter(|d| kind == ServerKind::Reference || !known.explains(&scenario.name, &step.name, d))
                .collect::<Vec<_>>();
            wrong += usize::from(!unexplained.is_empty());
            for difference in unexplained {
                let _ = writeln!(report, "{} / {}\n    {difference}", scenario.name, step.name);
            }
        }
    }
    assert!(wrong == 0, "{wrong} of {steps} answers differ from the reference:\n{report}");
    let all_played = std::env::var_os("CORPUS_ONLY").is_none() && kind != ServerKind::Reference;
    let stale = known.stale();
    assert!(!all_played || stale.is_empty(), "known differences that are none any more: {stale:#?}");
    eprintln!("{steps} answers, all as expected");
}
