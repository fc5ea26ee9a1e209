//! Content of files.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use jfs::error::{Error, Result};
use jfs::fuse::{Allocate, CopyRange, Read, ReadReply, Reply};

use super::nodes::Nodes;
use super::{Behaviour, MemoryFs, count};

const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const SEEK_DATA: u32 = 3;

impl MemoryFs {
    pub fn answer_read(self: &Arc<Self>, ino: u64, read: &Read, reply: Reply<ReadReply>) {
        let nodes = self.nodes();
        let (behaviour, part) = match nodes.get(ino) {
            Ok(node) => (node.behaviour, part(&node.content, read)),
            Err(error) => {
                reply.send(Err(error));
                return;
            }
        };
        match behaviour {
            Behaviour::Plain => {
                reply.send_slices(&[part]);
            }
            Behaviour::Gather(size) => {
                let parts: Vec<&[u8]> = part.chunks(size).collect();
                reply.send_slices(&parts);
            }
            Behaviour::Task => {
                let parts = part.chunks(3000).map(Bytes::copy_from_slice).collect();
                reply.spawn(async move { Ok(ReadReply(parts)) });
            }
            Behaviour::HangAbortable => reply.spawn_abortable(self.gated(part)),
            Behaviour::HangDetachable => {
                let me = Arc::clone(self);
                reply.spawn_detachable(self.gated(part), move |_| count(&me.seen.orphans));
            }
            Behaviour::HangStubborn => reply.spawn(self.gated(part)),
            Behaviour::Forget => drop(reply),
            Behaviour::Panic => {
                drop(nodes);
                panic!("requested by the test");
            }
        }
    }

    fn gated(
        self: &Arc<Self>,
        part: &[u8],
    ) -> impl Future<Output = Result<ReadReply>> + Send + 'static + use<> {
        let (content, me) = (Bytes::copy_from_slice(part), Arc::clone(self));
        async move {
            count(&me.seen.begun);
            let mut unfinished = Unfinished(Some(Arc::clone(&me)));
            me.gate.subscribe().wait_for(|open| *open).await.map_err(|_| Error::Interrupted)?;
            unfinished.0 = None;
            Ok(ReadReply(vec![content]))
        }
    }
}

/// Counts a task that was dropped before its end.
struct Unfinished(Option<Arc<MemoryFs>>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(fs) = &self.0 {
            fs.seen.aborted.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn part<'a>(content: &'a [u8], read: &Read) -> &'a [u8] {
    let start = usize::try_from(read.offset).unwrap().min(content.len());
    let end = (start + read.size as usize).min(content.len());
    &content[start..end]
}

pub fn put(content: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let start = usize::try_from(offset).unwrap();
    let end = start + data.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[start..end].copy_from_slice(data);
}

pub fn allocate(content: &mut Vec<u8>, allocate: &Allocate) -> Result<()> {
    let start = usize::try_from(allocate.offset).unwrap();
    let end = start + usize::try_from(allocate.length).unwrap();
    if allocate.mode & !(KEEP_SIZE | PUNCH_HOLE) != 0 {
        return Err(Error::NotSupported);
    }
    if allocate.mode & KEEP_SIZE == 0 && content.len() < end {
        content.resize(end, 0);
    }
    if allocate.mode & PUNCH_HOLE != 0 {
        let end = end.min(content.len());
        content[start.min(end)..end].fill(0);
    }
    Ok(())
}

/// Zeros are holes.
pub fn seek(content: &[u8], offset: u64, whence: u32) -> Result<u64> {
    let start = usize::try_from(offset).unwrap();
    // lseek(2) fails with ENXIO; there is no variant for it here.
    let rest = content.get(start..).filter(|rest| !rest.is_empty()).ok_or(Error::Invalid)?;
    let found = rest.iter().position(|byte| (*byte != 0) == (whence == SEEK_DATA));
    Ok(found.map_or(content.len() as u64, |found| offset + found as u64))
}

pub fn copy(nodes: &mut Nodes, from: u64, copy: &CopyRange) -> Result<u64> {
    let content = nodes.file_mut(from)?;
    let start = usize::try_from(copy.offset).unwrap().min(content.len());
    let end = start.saturating_add(usize::try_from(copy.length).unwrap()).min(content.len());
    let part = content[start..end].to_vec();
    put(nodes.file_mut(copy.to.0)?, copy.to_offset, &part);
    Ok(part.len() as u64)
}
