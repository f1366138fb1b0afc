//! Which worker gets which GPU of a node.
//!
//! DEVICE-1: a worker that asks for whole devices has them to itself; shares below one are packed onto as few as possible.

use carril_types::Resources;

const WHOLE: u64 = 10_000;

#[derive(Clone, Debug, Default)]
pub struct Devices {
    /// Name and what is free of it, in ten-thousandths.
    devices: Vec<(String, u64)>,
}

impl Devices {
    pub fn new(names: Vec<String>) -> Self {
        Self { devices: names.into_iter().map(|name| (name, WHOLE)).collect() }
    }

    /// The same devices, all of them free.
    pub fn all_free(&self) -> Self {
        Self::new(self.devices.iter().map(|(name, _)| name.clone()).collect())
    }

    /// The devices for one worker's share, or `None` where they are not free. A share without `GPU` gets none.
    pub fn take(&mut self, share: &Resources) -> Option<Vec<String>> {
        let units = (share.amount("GPU") * WHOLE as f64).round() as u64;
        if units == 0 || self.devices.is_empty() {
            return Some(Vec::new());
        }
        if units < WHOLE {
            // The fullest device that still has room, so that whole ones stay whole.
            let (name, free) =
                self.devices.iter_mut().filter(|(_, free)| *free >= units).min_by_key(|(_, free)| *free)?;
            *free -= units;
            return Some(vec![name.clone()]);
        }
        let count = units.div_ceil(WHOLE) as usize;
        let whole: Vec<usize> = (0..self.devices.len()).filter(|i| self.devices[*i].1 == WHOLE).take(count).collect();
        if whole.len() < count {
            return None;
        }
        for index in &whole {
            self.devices[*index].1 = 0;
        }
        Some(whole.into_iter().map(|index| self.devices[index].0.clone()).collect())
    }

    pub fn give_back(&mut self, share: &Resources, names: &[String]) {
        let units = (share.amount("GPU") * WHOLE as f64).round() as u64;
        for (name, free) in self.devices.iter_mut().filter(|(name, _)| names.contains(name)) {
            *free = (*free + units.min(WHOLE)).min(WHOLE);
            debug_assert!(names.contains(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(amount: f64) -> Resources {
        Resources::from_amounts([("GPU", amount)]).unwrap()
    }

    #[test]
    fn device_1_whole_devices_are_not_shared_and_shares_are_packed() {
        let mut devices = Devices::new(vec!["0".into(), "1".into(), "2".into()]);
        assert_eq!(devices.take(&gpus(0.5)).unwrap(), ["0"]);
        assert_eq!(devices.take(&gpus(0.5)).unwrap(), ["0"]);
        assert_eq!(devices.take(&gpus(2.0)).unwrap(), ["1", "2"]);
        assert_eq!(devices.take(&gpus(0.5)), None);
        devices.give_back(&gpus(2.0), &["1".into(), "2".into()]);
        assert_eq!(devices.take(&gpus(1.0)).unwrap(), ["1"]);
    }

    #[test]
    fn a_share_without_gpus_gets_none() {
        assert_eq!(Devices::new(vec!["0".into()]).take(&Resources::default()).unwrap(), Vec::<String>::new());
    }
}
