//! What `top` and `ps` call a process of ours: a worker by its run and its rank. A fork of the zygote would keep that one's name and
//! command line.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// The kernel keeps so many bytes of a name.
const LONGEST: usize = 15;

pub(crate) fn show(run: &str, rank: u32, world_size: u32) {
    show_title(&short(run, rank), &format!("carril worker: rank {rank} of {world_size}, run `{run}`"));
}

/// The name that `top` shows, of which the kernel keeps 15 bytes, and the command line.
pub fn show_title(name: &str, command_line: &str) {
    // Best effort: a name is for people.
    let _ = fs::write("/proc/self/comm", name);
    let _ = write_over(command_line);
}

/// The rank is told from the others in any case, and of the run what there is room for.
fn short(run: &str, rank: u32) -> String {
    let rank = format!(":{rank}");
    let mut room = LONGEST - rank.len();
    while !run.is_char_boundary(room.min(run.len())) {
        room -= 1;
    }
    format!("{}{rank}", &run[..room.min(run.len())])
}

/// Writes over the process's own command line, as far as that reaches.
fn write_over(title: &str) -> Option<()> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The fields `arg_start` and `arg_end`, counted after the name in parentheses, which may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(45);
    let (start, end): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let room = usize::try_from(end.checked_sub(start)?).ok()?.checked_sub(1)?;
    let mut bytes = title.as_bytes()[..title.len().min(room)].to_vec();
    bytes.resize(room + 1, 0);
    File::options().write(true).open("/proc/self/mem").ok()?.write_all_at(&bytes, start).ok()
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn the_rank_is_in_a_name_of_any_length() {
        assert_eq!(short("run", 0), "run:0");
        assert_eq!(short("a-very-long-name-of-a-run", 12), "a-very-long-:12");
        assert_eq!(short("größer-als-erlaubt", 3), "größer-als-:3");
        assert_eq!(short("", 3), ":3");
    }
}
