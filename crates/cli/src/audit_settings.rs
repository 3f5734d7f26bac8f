//! What is written down of requests, where, and for how long.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use croft_apiserver::{AuditBatch, AuditLog, AuditPolicy, AuditSink, AuditWebhook};

use crate::lifetime;
use crate::options::ServerOptions;

const AUDIT_LOG: &str = "audit/audit.log";

pub(crate) fn resolve(options: &ServerOptions, data_dir: &Path) -> anyhow::Result<AuditLog> {
    let to = match options.audit_log_path.as_deref() {
        None => AuditSink::File(data_dir.join(AUDIT_LOG)),
        Some("" | "off") => AuditSink::Off,
        Some("-") => AuditSink::StandardOutput,
        Some(path) => AuditSink::File(path.into()),
    };
    let size = options.audit_log_maxsize.unwrap_or(64);
    if size == 0 {
        bail!("--audit-log-maxsize: 0 MiB have room for nothing; say --audit-log-path=off to keep no audit log");
    }
    Ok(AuditLog {
        to,
        max_bytes: u64::from(size) << 20,
        max_backups: options.audit_log_maxbackup.unwrap_or(8) as usize,
        max_age: Duration::from_hours(24) * options.audit_log_maxage.unwrap_or(30),
        policy: options.audit_policy_file.as_deref().map(policy).transpose()?,
        webhook: webhook(options)?,
    })
}

fn policy(path: &Path) -> anyhow::Result<AuditPolicy> {
    let what = || format!("--audit-policy-file: {}", path.display());
    let text = std::fs::read_to_string(path).with_context(what)?;
    AuditPolicy::parse(&text).with_context(what)
}

fn webhook(options: &ServerOptions) -> anyhow::Result<Option<AuditWebhook>> {
    let batch = batch(options)?;
    let Some(path) = &options.audit_webhook_config_file else { return Ok(None) };
    let webhook = AuditWebhook::read(path, batch);
    webhook.map(Some).with_context(|| format!("--audit-webhook-config-file: {}", path.display()))
}

fn batch(options: &ServerOptions) -> anyhow::Result<AuditBatch> {
    let count = |flag: &str, said: Option<u32>, default: u32| match said.unwrap_or(default) {
        0 => bail!("{flag}: 0 are none; at least one"),
        count => Ok(count as usize),
    };
    let time = |flag: &str, said: Option<&String>, default: u64| match said {
        None => Ok(Duration::from_secs(default)),
        Some(text) => lifetime::parse(text).map_err(|why| anyhow::anyhow!("{flag}: {why}")),
    };
    Ok(AuditBatch {
        max_size: count("--audit-webhook-batch-max-size", options.audit_webhook_batch_max_size, 400)?,
        buffer_size: count("--audit-webhook-batch-buffer-size", options.audit_webhook_batch_buffer_size, 10_000)?,
        max_wait: time("--audit-webhook-batch-max-wait", options.audit_webhook_batch_max_wait.as_ref(), 30)?,
        initial_backoff: time("--audit-webhook-initial-backoff", options.audit_webhook_initial_backoff.as_ref(), 10)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(change: impl FnOnce(&mut ServerOptions)) -> anyhow::Result<AuditLog> {
        let mut options = ServerOptions::default();
        change(&mut options);
        super::resolve(&options, Path::new("/d"))
    }

    #[test]
    fn the_audit_log_is_where_it_was_asked_for() {
        for (path, expected) in [
            (None, AuditSink::File("/d/audit/audit.log".into())),
            (Some("/var/log/croft.log"), AuditSink::File("/var/log/croft.log".into())),
            (Some("-"), AuditSink::StandardOutput),
            (Some("off"), AuditSink::Off),
            (Some(""), AuditSink::Off),
        ] {
            let audit = resolve(|options| options.audit_log_path = path.map(str::to_owned)).unwrap();
            assert_eq!(audit.to, expected, "{path:?}");
            assert_eq!((audit.max_bytes, audit.max_backups, audit.max_age.as_secs()), (64 << 20, 8, 30 * 86_400));
            assert!(audit.policy.is_none() && audit.webhook.is_none());
        }
        let audit = resolve(|options| {
            options.audit_log_maxsize = Some(1);
            options.audit_log_maxbackup = Some(0);
            options.audit_log_maxage = Some(0);
        });
        let audit = audit.unwrap();
        assert_eq!((audit.max_bytes, audit.max_backups, audit.max_age), (1 << 20, 0, Duration::ZERO));
    }

    #[test]
    fn mistakes_are_explained() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.yaml");
        std::fs::write(&file, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Loud}]\n").unwrap();
        let complaint =
            |change: &dyn Fn(&mut ServerOptions)| format!("{:#}", resolve(|options| change(options)).unwrap_err());
        let error = complaint(&|options| options.audit_policy_file = Some(file.clone()));
        assert!(
            error.starts_with("--audit-policy-file: /") && error.contains("policy.yaml: rules[0].level: "),
            "{error}"
        );
        let error = complaint(&|options| options.audit_policy_file = Some("/nonexistent".into()));
        assert!(error.starts_with("--audit-policy-file: /nonexistent: No such file"), "{error}");
        let error = complaint(&|options| options.audit_webhook_config_file = Some(file.clone()));
        assert!(error.contains("policy.yaml: it has no context"), "{error}");
        let error = complaint(&|options| options.audit_webhook_batch_max_wait = Some("soon".to_owned()));
        assert!(error.starts_with("--audit-webhook-batch-max-wait: \"soon\" is not a duration"), "{error}");
        let error = complaint(&|options| options.audit_webhook_batch_max_size = Some(0));
        assert!(error.contains("at least one"), "{error}");
        let error = complaint(&|options| options.audit_log_maxsize = Some(0));
        assert!(error.contains("0 MiB have room for nothing"), "{error}");
    }
}
