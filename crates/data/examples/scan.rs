//! Reads all units of a source in a few threads and tells how long that took: `scan THREADS SPEC`, where SPEC is JSON as in
//! `{"format": "parquet", "paths": ["/data"]}`.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use carril_data::read::ReadSpec;
use carril_data::{DataError, Flow};

fn main() -> Result<(), DataError> {
    let mut arguments = std::env::args().skip(1);
    let (Some(threads), Some(spec)) = (arguments.next(), arguments.next()) else {
        return Err(DataError::invalid("scan THREADS SPEC"));
    };
    let threads: usize = threads.parse().map_err(|_| DataError::invalid("THREADS is a number"))?;
    let spec: ReadSpec = serde_json::from_str(&spec).map_err(|error| DataError::invalid(error.to_string()))?;
    let begun = Instant::now();
    let source = spec.open()?;
    let opened = begun.elapsed();
    let (next, rows) = (AtomicUsize::new(0), AtomicU64::new(0));
    let work = || -> Result<(), DataError> {
        loop {
            let unit = next.fetch_add(1, Ordering::Relaxed);
            if unit >= source.units().len() {
                return Ok(());
            }
            source.read(unit, &mut |block| {
                rows.fetch_add(block.num_rows() as u64, Ordering::Relaxed);
                Ok(Flow::Continue)
            })?;
        }
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().try_for_each(|thread| thread.join().expect("a reader does not panic"))
    })?;
    let (rows, units) = (rows.into_inner(), source.units().len());
    println!(
        "{rows} rows of {units} units in {:.3} s, {:.3} s of it to open",
        begun.elapsed().as_secs_f64(),
        opened.as_secs_f64()
    );
    Ok(())
}
