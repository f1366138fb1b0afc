//! Which NVIDIA devices this process may use.

use std::fs;

/// The names of the devices, as `CUDA_VISIBLE_DEVICES` would list them.
/// `present` are the indices that exist; `narrowed` is the variable's value, where it is set.
pub fn visible_devices(present: &[String], narrowed: Option<&str>) -> Vec<String> {
    let Some(narrowed) = narrowed else { return present.to_vec() };
    let mut visible = Vec::new();
    for name in narrowed.split(',').map(str::trim) {
        // CUDA itself stops at the first entry that it does not know, `-1` among them.
        let known = name.starts_with("GPU-") || name.starts_with("MIG-") || present.iter().any(|device| device == name);
        if !known || present.is_empty() {
            break;
        }
        visible.push(name.to_owned());
    }
    visible
}

/// Indices of the devices that the driver shows, `0`, `1`, …
pub(crate) fn present_devices() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/dev") else { return Vec::new() };
    let mut indices: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("nvidia")?.parse().ok())
        .collect();
    indices.sort_unstable();
    indices.iter().map(u32::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn four() -> Vec<String> {
        (0..4).map(|index| index.to_string()).collect()
    }

    #[test]
    fn the_variable_narrows_in_its_own_order() {
        assert_eq!(visible_devices(&four(), None), four());
        assert_eq!(visible_devices(&four(), Some("2,0")), ["2", "0"]);
        assert_eq!(visible_devices(&four(), Some("GPU-abc, MIG-1")), ["GPU-abc", "MIG-1"]);
    }

    #[test]
    fn what_cuda_would_not_see_is_not_counted() {
        let none: [String; 0] = [];
        assert_eq!(visible_devices(&four(), Some("")), none);
        assert_eq!(visible_devices(&four(), Some("-1")), none);
        assert_eq!(visible_devices(&four(), Some("1,9,2")), ["1"]);
        assert_eq!(visible_devices(&[], Some("0,1")), none);
    }
}
