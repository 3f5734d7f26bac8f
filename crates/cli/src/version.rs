//! `croft version`.

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Text, env = "CROFT_OUTPUT")]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Text,
    Json,
}

pub(crate) fn run(args: &VersionArgs) -> String {
    let version = env!("CARGO_PKG_VERSION");
    // Set by the release build; a plain `cargo build` does not know.
    let commit = option_env!("CROFT_COMMIT").unwrap_or("unknown");
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    match args.output {
        Output::Text => format!("croft {version} ({commit}, {platform})\n"),
        Output::Json => {
            let json = serde_json::json!({ "version": version, "gitCommit": commit, "platform": platform });
            format!("{json:#}\n")
        }
    }
}
