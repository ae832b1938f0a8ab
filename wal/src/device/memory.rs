//! What memory this process may have.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Bytes of memory that the machine has, or that this process may have of it where a control group
/// bounds it; `None` where the system does not say.
pub fn memory_bytes() -> Option<u64> {
    let total = machine_bytes(&read_to_string("/proc/meminfo").ok()?)?;
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits =
        group_files(&groups).filter_map(|path| read_to_string(path).ok()?.trim().parse().ok());
    Some(limits.fold(total, u64::min))
}

/// The machine's, from `/proc/meminfo`.
fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Where the bounds stand of the groups that `/proc/self/cgroup` names, and of all that hold them.
/// A container sees its own group at the root.
fn group_files(groups: &str) -> impl Iterator<Item = PathBuf> {
    let files = |line: &str| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            it if it.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let own = Path::new(root).join(group.trim_start_matches('/'));
        let all = own.ancestors().take_while(|it| it.starts_with(root)).map(|it| it.join(file));
        Some(all.collect::<Vec<_>>())
    };
    groups.lines().filter_map(files).flatten().collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_machine_s_memory_is_read_and_what_is_no_number_is_none() {
        assert_eq!(
            machine_bytes("MemTotal:       24684084 kB\nMemFree: 1 kB\n"),
            Some(25276502016)
        );
        assert_eq!(machine_bytes("MemTotal: many kB\n"), None);
        assert_eq!(machine_bytes(""), None);
        assert!(memory_bytes().unwrap() > 1 << 20);
    }

    #[test]
    fn the_bounds_of_a_group_are_those_of_all_that_hold_it() {
        let files = |groups| -> Vec<_> {
            group_files(groups).map(|path| path.to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(
            files("0::/system.slice/sluice.service\n"),
            [
                "/sys/fs/cgroup/system.slice/sluice.service/memory.max",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
        assert_eq!(files("0::/\n"), ["/sys/fs/cgroup/memory.max"]);
        assert_eq!(
            files("5:cpu,cpuacct:/a\n4:memory:/a\n"),
            [
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            ]
        );
        assert!(files("nothing\n").is_empty());
    }
}
