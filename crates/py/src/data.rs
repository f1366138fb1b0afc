//! Data for Python: blocks of columns as buffers that numpy looks at in place, sources, and streams of batches.

mod block;
mod export;
mod import;
mod shard;
mod stream;
mod times;
mod watch;
mod write;

use pyo3::prelude::*;

pub use block::{Block, Buffer};
pub use shard::{Epoch, Positions, Shard};
pub use stream::{Source, Stream, Transform};
pub use write::Writer;

pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Block>()?;
    module.add_class::<Buffer>()?;
    module.add_class::<Source>()?;
    module.add_class::<Transform>()?;
    module.add_class::<Stream>()?;
    module.add_class::<Positions>()?;
    module.add_class::<Shard>()?;
    module.add_class::<Epoch>()?;
    module.add_class::<Writer>()?;
    module.add_function(wrap_pyfunction!(stream::read_blocks, module)?)?;
    module.add_function(wrap_pyfunction!(stream::write_blocks, module)?)
}
