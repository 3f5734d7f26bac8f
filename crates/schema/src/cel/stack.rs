//! Room for the parser and the interpreter, which recurse with large frames: a worker thread's two
//! megabytes can end a dozen levels down. Only pages that are used cost memory.

use std::io;
use std::thread;

const BYTES: usize = 128 << 20;

/// Runs `work` on a thread with a large stack, and waits for it.
pub(crate) fn with_room<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().name("cel".to_owned()).stack_size(BYTES).spawn_scoped(scope, work)?;
        worker.join().map_err(|_| io::Error::other("the interpreter failed"))
    })
}
