//! The operations on files, each made of a few calls.

use bytes::Bytes;
use jiff::Timestamp;
use nfs3_client::nfs3_types::nfs3::{
    COMMIT3args, CREATE3args, GETATTR3args, LOOKUP3args, MKDIR3args, Nfs3Option, Nfs3Result, READ3args,
    READDIRPLUS3args, REMOVE3args, RENAME3args, RMDIR3args, WRITE3args, cookieverf3, createhow3, diropargs3, fattr3,
    filename3, ftype3, nfs_fh3, nfsstat3, nfstime3, sattr3, stable_how, writeverf3,
};
use nfs3_client::nfs3_types::xdr_codec::Opaque;

use crate::target::nfs::{Connection, Nfs, NfsError};
use crate::target::{Entry, parent, removable_parents, unfinished_name};

/// For one call; every server takes this much or says how much it took.
const CHUNK: u32 = 512 * 1024;
const LISTING: u32 = 64 * 1024;

/// What is directly in a directory. A file has a size and a time.
pub(super) struct Found {
    pub(super) name: String,
    pub(super) file: Option<(u64, Timestamp)>,
}

fn ok<T, E>(result: Nfs3Result<T, E>) -> Result<T, NfsError> {
    match result {
        Nfs3Result::Ok(ok) => Ok(ok),
        Nfs3Result::Err((status, _)) => Err(NfsError::Status(status)),
    }
}

fn none_if<T>(status: nfsstat3, result: Result<T, NfsError>) -> Result<Option<T>, NfsError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is(status) => Ok(None),
        Err(error) => Err(error),
    }
}

fn time(time: nfstime3) -> Timestamp {
    let nanoseconds = i32::try_from(time.nseconds).unwrap_or(0);
    Timestamp::new(time.seconds.into(), nanoseconds).unwrap_or_default()
}

fn named<'a>(dir: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: filename3(Opaque::borrowed(name.as_bytes())) }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn mode(mode: u32) -> sattr3 {
    sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() }
}

impl Nfs {
    pub(super) async fn look_into(&self, connection: &mut Connection, path: &str) -> Result<Vec<Found>, NfsError> {
        let Some(dir) = none_if(nfsstat3::NFS3ERR_NOENT, self.directory(connection, path).await)? else {
            return Ok(Vec::new());
        };
        let (mut found, mut cookie, mut cookieverf) = (Vec::new(), 0, cookieverf3::default());
        loop {
            let args = READDIRPLUS3args { dir: dir.clone(), cookie, cookieverf, dircount: LISTING, maxcount: LISTING };
            let page = ok(connection.client.readdirplus(&args).await?)?;
            cookieverf = page.cookieverf;
            let entries = page.reply.entries.into_inner();
            let is_last = page.reply.eof || entries.is_empty();
            for entry in entries {
                cookie = entry.cookie;
                let name = String::from_utf8_lossy(entry.name.as_ref()).into_owned();
                if matches!(name.as_str(), "." | "..") {
                    continue;
                }
                let attributes = match entry.name_attributes {
                    Nfs3Option::Some(attributes) => Some(attributes),
                    Nfs3Option::None => {
                        self.attributes(connection, &dir, &name).await?.map(|(_, attributes)| attributes)
                    }
                };
                match attributes {
                    Some(it) if it.type_ == ftype3::NF3DIR => {
                        if let Nfs3Option::Some(handle) = &entry.name_handle {
                            self.remember(
                                &if path.is_empty() { name.clone() } else { format!("{path}/{name}") },
                                handle,
                            );
                        }
                        found.push(Found { name, file: None });
                    }
                    Some(it) if it.type_ == ftype3::NF3REG => {
                        found.push(Found { name, file: Some((it.size, time(it.mtime))) });
                    }
                    // Gone meanwhile, or nothing that we would have made.
                    _ => {}
                }
            }
            if is_last {
                return Ok(found);
            }
        }
    }

    pub(super) async fn look_at(&self, connection: &mut Connection, path: &str) -> Result<Option<Entry>, NfsError> {
        let Some(dir) = none_if(nfsstat3::NFS3ERR_NOENT, self.directory(connection, parent(path)).await)? else {
            return Ok(None);
        };
        let found = self.attributes(connection, &dir, file_name(path)).await?;
        let file = found.map(|(_, attributes)| attributes).filter(|it| it.type_ == ftype3::NF3REG);
        Ok(file.map(|it| Entry { path: path.into(), size: it.size, modified: time(it.mtime) }))
    }

    pub(super) async fn read(&self, connection: &mut Connection, path: &str, limit: u64) -> Result<Bytes, NfsError> {
        let dir = self.directory(connection, parent(path)).await?;
        let found = self.attributes(connection, &dir, file_name(path)).await?;
        let (file, attributes) = found.ok_or(NfsError::Status(nfsstat3::NFS3ERR_NOENT))?;
        if attributes.size > limit {
            return Err(NfsError::TooLarge(limit));
        }
        let mut data = Vec::with_capacity(usize::try_from(attributes.size).unwrap_or(0));
        loop {
            let args = READ3args { file: file.clone(), offset: data.len() as u64, count: CHUNK };
            let part = ok(connection.client.read(&args).await?)?;
            data.extend_from_slice(&part.data);
            if data.len() as u64 > limit {
                return Err(NfsError::TooLarge(limit));
            }
            if part.eof || part.data.is_empty() {
                return Ok(data.into());
            }
        }
    }

    /// Under another name first; a rename over what is there is atomic, and durable when the server answers.
    pub(super) async fn write(&self, connection: &mut Connection, path: &str, data: Bytes) -> Result<(), NfsError> {
        let dir = self.make_directory(connection, parent(path)).await?;
        let unfinished = unfinished_name(file_name(path)).map_err(NfsError::Random)?;
        let written = self.write_new(connection, &dir, &unfinished, &data).await;
        let moved = match written {
            Ok(()) => {
                let args = RENAME3args { from: named(&dir, &unfinished), to: named(&dir, file_name(path)) };
                ok(connection.client.rename(&args).await?).map(drop)
            }
            Err(error) => Err(error),
        };
        if matches!(moved, Err(NfsError::Status(_) | NfsError::Lost)) {
            // Where the server says why not, it also takes back what it has.
            connection.client.remove(&REMOVE3args { object: named(&dir, &unfinished) }).await?;
        }
        if moved.as_ref().is_err_and(|error| error.is(nfsstat3::NFS3ERR_NOENT)) {
            // The directory became empty and was removed; it is to be made again.
            return Err(NfsError::Status(nfsstat3::NFS3ERR_STALE));
        }
        moved
    }

    async fn write_new(
        &self,
        connection: &mut Connection,
        dir: &nfs_fh3,
        name: &str,
        data: &[u8],
    ) -> Result<(), NfsError> {
        let args = CREATE3args { where_: named(dir, name), how: createhow3::GUARDED(mode(0o600)) };
        let file = match ok(connection.client.create(&args).await?)?.obj {
            Nfs3Option::Some(handle) => handle,
            Nfs3Option::None => self.attributes(connection, dir, name).await?.ok_or(NfsError::NoHandle)?.0,
        };
        for _ in 0..2 {
            let verifiers = self.write_all(connection, &file, data).await?;
            let args = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
            let committed = ok(connection.client.commit(&args).await?)?;
            // Another verifier than when it was written: the server started anew in between and may have lost it.
            if verifiers.iter().all(|verifier| *verifier == committed.verf) {
                return Ok(());
            }
        }
        Err(NfsError::Lost)
    }

    /// Gives the verifiers of what is not on the server's disk yet.
    async fn write_all(
        &self,
        connection: &mut Connection,
        file: &nfs_fh3,
        data: &[u8],
    ) -> Result<Vec<writeverf3>, NfsError> {
        let (mut verifiers, mut written) = (Vec::new(), 0);
        while written < data.len() {
            let chunk = &data[written..data.len().min(written + CHUNK as usize)];
            let args = WRITE3args {
                file: file.clone(),
                offset: written as u64,
                count: u32::try_from(chunk.len()).unwrap_or(CHUNK),
                stable: stable_how::UNSTABLE,
                data: Opaque::borrowed(chunk),
            };
            let answer = ok(connection.client.write(&args).await?)?;
            if answer.count == 0 {
                return Err(NfsError::Status(nfsstat3::NFS3ERR_IO));
            }
            if answer.committed != stable_how::FILE_SYNC {
                verifiers.push(answer.verf);
            }
            written += (answer.count as usize).min(chunk.len());
        }
        Ok(verifiers)
    }

    pub(super) async fn remove(&self, connection: &mut Connection, path: &str) -> Result<(), NfsError> {
        let missing = nfsstat3::NFS3ERR_NOENT;
        let Some(dir) = none_if(missing, self.directory(connection, parent(path)).await)? else { return Ok(()) };
        let args = REMOVE3args { object: named(&dir, file_name(path)) };
        none_if(missing, ok(connection.client.remove(&args).await?))?;
        for dir in removable_parents(path) {
            let Some(above) = none_if(missing, self.directory(connection, parent(dir)).await)? else { continue };
            let args = RMDIR3args { object: named(&above, file_name(dir)) };
            if ok(connection.client.rmdir(&args).await?).is_err() {
                // Not empty; or somebody else was faster, and removes what is above too.
                break;
            }
            self.forget(dir);
        }
        Ok(())
    }

    async fn attributes(
        &self,
        connection: &mut Connection,
        dir: &nfs_fh3,
        name: &str,
    ) -> Result<Option<(nfs_fh3, fattr3)>, NfsError> {
        let looked_up = connection.client.lookup(&LOOKUP3args { what: named(dir, name) }).await?;
        let Some(found) = none_if(nfsstat3::NFS3ERR_NOENT, ok(looked_up))? else { return Ok(None) };
        let attributes = match found.obj_attributes {
            Nfs3Option::Some(attributes) => attributes,
            Nfs3Option::None => {
                let args = GETATTR3args { object: found.object.clone() };
                ok(connection.client.getattr(&args).await?)?.obj_attributes
            }
        };
        Ok(Some((found.object, attributes)))
    }

    async fn directory(&self, connection: &mut Connection, dir: &str) -> Result<nfs_fh3, NfsError> {
        self.descend(connection, dir, false).await
    }

    async fn make_directory(&self, connection: &mut Connection, dir: &str) -> Result<nfs_fh3, NfsError> {
        self.descend(connection, dir, true).await
    }

    async fn descend(&self, connection: &mut Connection, dir: &str, is_made: bool) -> Result<nfs_fh3, NfsError> {
        if dir.is_empty() {
            return Ok(connection.root.clone());
        }
        let (mut handle, mut path) = (connection.root.clone(), String::new());
        for part in dir.split('/') {
            path = if path.is_empty() { part.to_owned() } else { format!("{path}/{part}") };
            let known = self.handles.lock().get(&path).cloned();
            handle = match known {
                Some(known) => known,
                None => self.enter(connection, &handle, part, is_made).await?,
            };
            self.remember(&path, &handle);
        }
        Ok(handle)
    }

    async fn enter(
        &self,
        connection: &mut Connection,
        above: &nfs_fh3,
        name: &str,
        is_made: bool,
    ) -> Result<nfs_fh3, NfsError> {
        if let Some((handle, _)) = self.attributes(connection, above, name).await? {
            return Ok(handle);
        }
        if !is_made {
            return Err(NfsError::Status(nfsstat3::NFS3ERR_NOENT));
        }
        let args = MKDIR3args { where_: named(above, name), attributes: mode(0o700) };
        // Somebody else may make it at the same time.
        none_if(nfsstat3::NFS3ERR_EXIST, ok(connection.client.mkdir(&args).await?))?;
        let made = self.attributes(connection, above, name).await?;
        Ok(made.ok_or(NfsError::Status(nfsstat3::NFS3ERR_STALE))?.0)
    }
}
