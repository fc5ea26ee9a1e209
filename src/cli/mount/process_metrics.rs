//! CPU, memory and files used by this process, as metrics under JuiceFS's names.

use std::fs;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, Opts, Registry};

/// Bytes of a page, on every platform this runs on.
const PAGE: f64 = 4096.0;

struct ProcessMetrics {
    started: Instant,
    cpu: Gauge,
    memory: Gauge,
    uptime: Gauge,
    process_cpu: Gauge,
    resident: Gauge,
    virtual_memory: Gauge,
    open_files: Gauge,
    max_files: Gauge,
    start_time: Gauge,
}

/// Registers the metrics of this process.
pub fn register(registry: &Registry) -> prometheus::Result<()> {
    let gauge = |name: &str, help: &str| Gauge::with_opts(Opts::new(name, help));
    let usage = ProcessMetrics {
        started: Instant::now(),
        cpu: gauge("cpu_usage", "CPU seconds used so far")?,
        memory: gauge("memory", "Resident memory in bytes")?,
        uptime: gauge("uptime", "Seconds since the mount started")?,
        process_cpu: gauge("process_cpu_seconds_total", "CPU seconds used so far")?,
        resident: gauge("process_resident_memory_bytes", "Resident memory in bytes")?,
        virtual_memory: gauge("process_virtual_memory_bytes", "Virtual memory in bytes")?,
        open_files: gauge("process_open_fds", "Open files")?,
        max_files: gauge("process_max_fds", "Limit of open files")?,
        start_time: gauge("process_start_time_seconds", "When the process started")?,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    usage.start_time.set(now.as_secs_f64());
    registry.register(Box::new(usage))
}

impl ProcessMetrics {
    fn gauges(&self) -> [&Gauge; 9] {
        [
            &self.cpu,
            &self.memory,
            &self.uptime,
            &self.process_cpu,
            &self.resident,
            &self.virtual_memory,
            &self.open_files,
            &self.max_files,
            &self.start_time,
        ]
    }

    fn update(&self) {
        self.uptime.set(self.started.elapsed().as_secs_f64());
        if let Ok(used) = getrusage(UsageWho::RUSAGE_SELF) {
            let micros = (used.user_time() + used.system_time()).num_microseconds();
            self.cpu.set(micros as f64 / 1e6);
            self.process_cpu.set(micros as f64 / 1e6);
        }
        if let Some((all, resident)) = pages() {
            self.virtual_memory.set(all * PAGE);
            self.resident.set(resident * PAGE);
            self.memory.set(resident * PAGE);
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            self.open_files.set(files.count() as f64);
        }
        if let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
            self.max_files.set(soft as f64);
        }
    }
}

impl Collector for ProcessMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.update();
        self.gauges().into_iter().flat_map(Collector::collect).collect()
    }
}

/// Returns the virtual and the resident pages of the process.
fn pages() -> Option<(f64, f64)> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let mut numbers = text.split(' ').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_collected() {
        let registry = Registry::new_custom(Some("juicefs".to_owned()), None).unwrap();
        register(&registry).unwrap();
        let found = registry.gather();
        let value = |name: &str| {
            let family = found.iter().find(|family| family.name() == name).expect(name);
            family.get_metric()[0].get_gauge().get_value()
        };
        assert!(value("juicefs_memory") > 1e6);
        assert!(value("juicefs_uptime") >= 0.0 && value("juicefs_cpu_usage") >= 0.0);
        assert!(value("juicefs_process_open_fds") >= 3.0);
    }
}
