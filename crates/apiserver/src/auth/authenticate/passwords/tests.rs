use super::super::tests::user;
use super::*;
use crate::auth::testing::TestCache;

fn passwords(cache: &Cache, limits: LoginLimits) -> Arc<Passwords> {
    Arc::new(Passwords::new(cache, limits).unwrap())
}

#[tokio::test]
async fn guessing_is_slowed_down_per_user() {
    let cache = TestCache::new([user("ann", "secret"), user("bob", "other")]).await;
    let passwords = passwords(&cache, LoginLimits::default());
    let at = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap();
    let login = async |name: &str, password: &str, second| {
        passwords.login(name.to_owned(), password.to_owned(), None, at(second)).await
    };
    assert!(login("ann", "secret", 0).await.is_ok());
    for guess in 0..5 {
        assert!(matches!(login("ann", &format!("guess {guess}"), 0).await, Err(LoginError::Wrong(_))), "{guess}");
    }
    let throttled = |retry_after_seconds| Err(LoginError::Throttled { retry_after_seconds });
    assert_eq!(login("ann", "guess", 0).await, throttled(1));
    assert!(login("ann", "secret", 0).await.is_ok(), "whoever is in already is not locked out");
    assert!(login("bob", "other", 0).await.is_ok(), "others are not affected");
    assert!(matches!(login("ann", "guess", 1).await, Err(LoginError::Wrong(_))));
    assert_eq!(login("ann", "guess", 1).await, throttled(2));
    assert_eq!(login("ann", "guess", 2).await, throttled(1));
    // Long enough for the first login to be forgotten too; the right password ends the wait.
    assert!(login("ann", "secret", 100).await.is_ok());
    assert!(matches!(login("ann", "guess", 100).await, Err(LoginError::Wrong(_))));
}

#[tokio::test]
async fn a_name_is_locked_whether_it_is_somebodys_or_not() {
    let cache = TestCache::new([user("ann", "secret")]).await;
    let passwords = passwords(&cache, LoginLimits { attempts: 3, ..LoginLimits::default() });
    let at = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap();
    for name in ["ann", "nobody"] {
        let login = async |password: &str, second| {
            passwords.login(name.to_owned(), password.to_owned(), None, at(second)).await
        };
        for guess in 0..3 {
            assert!(matches!(login(&format!("guess {guess}"), 0).await, Err(LoginError::Wrong(_))), "{name} {guess}");
        }
        let locked = Err(LoginError::Locked { retry_after_seconds: 841 });
        assert_eq!(login("secret", 60).await, locked, "{name}: not even with the right password");
        assert_eq!(login("secret", 901).await.is_ok(), name == "ann");
    }
}

#[tokio::test]
async fn nothing_is_remembered_of_what_is_too_long_for_a_name_or_a_password() {
    let cache = TestCache::new([user("ann", "secret")]).await;
    let passwords = passwords(&cache, LoginLimits { attempts: 1, ..LoginLimits::default() });
    let long = "x".repeat(LONGEST + 1);
    let now = Timestamp::now();
    for _ in 0..3 {
        for (name, password) in [(&long[..], "secret"), ("ann", &long)] {
            let refused = passwords.login(name.to_owned(), password.to_owned(), None, now).await;
            assert!(matches!(refused, Err(LoginError::Wrong(_))), "{refused:?}");
        }
    }
    assert!(passwords.login("ann".to_owned(), "secret".to_owned(), None, now).await.is_ok());
    assert!(matches!(
        passwords.login(long[1..].to_owned(), "wrong".to_owned(), None, now).await,
        Err(LoginError::Wrong(_))
    ));
    assert!(passwords.lockouts.seconds_left(&long, now).is_none());
    assert!(passwords.lockouts.seconds_left(&long[1..], now).is_some(), "as many bytes as may be are");
}

#[tokio::test]
async fn a_name_is_only_told_to_the_log_if_it_is_somebodys() {
    let cache = TestCache::new([user("ann", "secret")]).await;
    let passwords = passwords(&cache, LoginLimits::default());
    let refused =
        async |name: &str| match passwords.login(name.to_owned(), "wrong".to_owned(), None, Timestamp::now()).await {
            Err(LoginError::Wrong(why)) => why,
            other => panic!("{other:?}"),
        };
    assert!(refused("ann").await.contains("ann"));
    assert!(!refused("hunter2").await.contains("hunter2"));
}

/// Takes all slots, and starts as many logins, whose callers go away at once.
async fn abandoned(passwords: &Arc<Passwords>, logins: usize, now: Timestamp) -> Vec<Turn> {
    let mut held = Vec::new();
    for _ in 0..CHECKS_AT_A_TIME {
        held.push(passwords.hashing.turn(passwords.hashing.place().unwrap()).await);
    }
    for guess in 0..logins {
        let mut gone = Box::pin(passwords.login("ann".to_owned(), format!("guess {guess}"), None, now));
        assert!(futures::poll!(&mut gone).is_pending());
    }
    held
}

#[tokio::test]
async fn who_goes_away_waits_for_a_turn_all_the_same_and_is_counted() {
    let cache = TestCache::new([user("ann", "secret")]).await;
    let passwords = passwords(&cache, LoginLimits::default());
    let now = Timestamp::from_second(1_000_000).unwrap();
    let held = abandoned(&passwords, 100, now).await;
    assert_eq!(passwords.hashing.free(), (0, CHECKS_WAITING - 100));
    drop(held);
    // This one is behind them, and they have used up the patience.
    let next = passwords.login("ann".to_owned(), "secret".to_owned(), None, now).await;
    assert!(matches!(next, Err(LoginError::Throttled { .. })), "{next:?}");
}

#[tokio::test]
async fn more_than_can_wait_are_turned_away() {
    let cache = TestCache::new([user("ann", "secret")]).await;
    let passwords = passwords(&cache, LoginLimits::default());
    let now = Timestamp::from_second(1_000_000).unwrap();
    let _held = abandoned(&passwords, CHECKS_WAITING, now).await;
    let next = passwords.login("ann".to_owned(), "secret".to_owned(), None, now).await;
    assert_eq!(next, Err(LoginError::Busy));
}

#[tokio::test]
async fn what_is_remembered_of_a_password_tells_nothing_to_others_nor_while_the_name_is_locked() {
    let cache = TestCache::new([user("ann", "secret")]).await;
    let passwords = passwords(&cache, LoginLimits::default());
    let now = Timestamp::from_second(1_000_000).unwrap();
    let login = async |password: &str, address: &str| {
        passwords.login("ann".to_owned(), password.to_owned(), Some(address.parse().unwrap()), now).await
    };
    assert!(login("secret", "192.0.2.1").await.is_ok());
    for guess in 0..5 {
        assert!(matches!(login(&format!("guess {guess}"), "192.0.2.2").await, Err(LoginError::Wrong(_))));
    }
    let throttled = || Err(LoginError::Throttled { retry_after_seconds: 1 });
    assert_eq!(login("guess", "192.0.2.2").await, throttled());
    assert_eq!(login("secret", "192.0.2.2").await, throttled(), "as for any other guess");
    assert!(login("secret", "::ffff:192.0.2.1").await.is_ok(), "whoever is in already is not locked out");
    passwords.lockouts.failed("ann", true, 10, now);
    assert!(matches!(login("secret", "192.0.2.1").await, Err(LoginError::Locked { .. })));
}
