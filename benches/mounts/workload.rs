//! One round of one client: everything that is measured, by one thread, through the kernel.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::Args;
use crate::measurement::{Measurement, Unit, resident};
use crate::support::fixture::{Client, Fixture};

const MIB: usize = 1 << 20;
/// Size of a small file.
const SMALL: usize = 16 << 10;

pub fn run(rig: &Fixture, client: Client, args: &Args) -> Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    let mut add = |name, unit, value| measurements.push(Measurement { name, unit, value });

    let start = Instant::now();
    let mount = rig.mount_by(client, &[]);
    fs::metadata(mount.path())?;
    add("time until ready", Unit::Milliseconds, start.elapsed().as_secs_f64() * 1e3);
    // Work at startup is over then.
    thread::sleep(Duration::from_secs(2));
    add("memory of an idle mount", Unit::Mib, resident(mount.pid())? as f64 / MIB as f64);

    let count = args.files as f64;
    let mut rate = |name, work: &dyn Fn() -> Result<()>| -> Result<()> {
        let start = Instant::now();
        work()?;
        add(name, Unit::PerSecond, count / start.elapsed().as_secs_f64());
        Ok(())
    };
    let dir = mount.at("dir");
    let (each, other) = (|n: usize| dir.join(format!("f{n}")), mount.at("other"));
    fs::create_dir(&dir)?;
    fs::create_dir(&other)?;
    rate("create", &|| {
        for n in 0..args.files {
            drop(File::create_new(each(n))?);
        }
        Ok(())
    })?;
    forget_names()?;
    rate("stat", &|| {
        for n in 0..args.files {
            fs::metadata(each(n))?;
        }
        Ok(())
    })?;
    forget_names()?;
    rate("readdir, names a second", &|| list(&dir, args.files, false))?;
    forget_names()?;
    rate("readdir with attributes, names a second", &|| list(&dir, args.files, true))?;
    rate("rename", &|| {
        for n in 0..args.files {
            fs::rename(each(n), other.join(format!("g{n}")))?;
        }
        Ok(())
    })?;
    rate("unlink", &|| {
        for n in 0..args.files {
            fs::remove_file(other.join(format!("g{n}")))?;
        }
        Ok(())
    })?;
    let content = vec![0x5A; SMALL];
    rate("small files written (16 KiB)", &|| {
        for n in 0..args.files {
            fs::write(each(n), &content)?;
        }
        Ok(())
    })?;
    forget_content()?;
    rate("small files read", &|| {
        for n in 0..args.files {
            ensure!(fs::read(each(n))? == content, "file {n} holds something else");
        }
        Ok(())
    })?;
    large(&mount.at("large"), args.large, &mut add)?;
    mount.unmount();
    Ok(measurements)
}

fn large(path: &Path, size: usize, add: &mut impl FnMut(&'static str, Unit, f64)) -> Result<()> {
    // Incompressible, and different in every block.
    let content: Vec<u8> = (0..MIB as u64 / 8)
        .flat_map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes())
        .collect();
    let start = Instant::now();
    let mut file = File::create(path)?;
    for _ in 0..size {
        file.write_all(&content)?;
    }
    file.sync_all()?;
    drop(file);
    add("large file written", Unit::MibPerSecond, size as f64 / start.elapsed().as_secs_f64());
    for name in ["large file read", "large file read again"] {
        forget_content()?;
        let start = Instant::now();
        let mut file = File::open(path)?;
        let mut part = vec![0; MIB];
        for _ in 0..size {
            file.read_exact(&mut part)?;
        }
        ensure!(part == content, "the file holds something else");
        add(name, Unit::MibPerSecond, size as f64 / start.elapsed().as_secs_f64());
    }
    Ok(())
}

fn list(dir: &Path, expected: usize, attributes: bool) -> Result<()> {
    let mut found = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if attributes {
            entry.metadata()?;
        }
        found += 1;
    }
    ensure!(found == expected, "{found} names instead of {expected}");
    Ok(())
}

/// Drops cached names, so that the next access asks the client.
fn forget_names() -> Result<()> {
    Ok(fs::write("/proc/sys/vm/drop_caches", "2")?)
}

/// Drops cached content, so that the next read asks the client, and the client its disk. Data that
/// is not on disk yet would not be dropped, and would be written during the next measurement.
fn forget_content() -> Result<()> {
    rustix::fs::sync();
    Ok(fs::write("/proc/sys/vm/drop_caches", "3")?)
}
