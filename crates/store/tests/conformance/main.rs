//! One suite, every engine: what the `Store` trait promises.

mod cases;
mod engine;
mod etcd_only;
mod etcd_server;
mod handover;
mod maintenance;
mod moving;

/// Each case on each engine, in a store of its own.
macro_rules! suite {
    ($($module:ident::$case:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let engine = crate::engine::embedded();
                crate::$module::$case(engine.store.clone()).await;
            })*
        }

        mod etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let engine = crate::engine::etcd().await;
                crate::$module::$case(engine.store.clone()).await;
            })*
        }

        mod sealed {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let engine = crate::engine::sealed().await;
                crate::$module::$case(engine.store.clone()).await;
            })*
        }
    };
}

suite! {
    cases::an_empty_store_is_empty,
    cases::a_put_is_read_back_with_its_revision,
    cases::every_transaction_takes_the_next_revision,
    cases::all_changes_of_a_transaction_share_its_revision,
    cases::a_failed_condition_changes_nothing,
    cases::conditions_see_deletions,
    cases::a_transaction_without_effect_takes_no_revision,
    cases::bad_transactions_are_refused,
    cases::odd_keys_are_kept_apart_and_in_byte_order,
    cases::binary_and_large_values_come_back_unchanged,
    cases::a_range_stays_within_its_prefix,
    cases::a_range_goes_on_after_a_key,
    cases::a_range_of_the_past_shows_the_past,
    cases::a_range_of_the_future_is_refused,
    cases::compaction_forgets_the_past_and_keeps_the_present,
    cases::a_watch_from_before_compaction_is_refused,
    cases::increments_with_conditions_lose_nothing,
    cases::a_lease_takes_its_keys_with_it,
    cases::an_expired_lease_takes_its_keys_with_it,
    cases::a_lease_that_is_kept_alive_stays,
    cases::an_unknown_lease_is_refused,
    cases::a_closed_store_answers_nothing,
    handover::a_watch_delivers_history_then_live_changes,
    handover::a_watch_sees_only_its_prefix,
    handover::a_transaction_arrives_whole,
    handover::a_watch_from_the_future_is_refused,
    handover::watches_opened_under_load_miss_and_repeat_nothing,
    handover::progress_comes_when_asked_for,
    handover::progress_never_runs_ahead_of_events,
}
