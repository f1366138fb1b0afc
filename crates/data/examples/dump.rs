//! Writes all rows of a source to an Arrow stream: `dump SPEC FILE`.

use carril_data::read::ReadSpec;
use carril_data::{DataError, Flow};

fn main() -> Result<(), DataError> {
    let mut arguments = std::env::args().skip(1);
    let (Some(spec), Some(to)) = (arguments.next(), arguments.next()) else {
        return Err(DataError::invalid("dump SPEC FILE"));
    };
    let spec: ReadSpec = serde_json::from_str(&spec).map_err(|error| DataError::invalid(error.to_string()))?;
    let source = spec.open()?;
    let file = std::fs::File::create(&to).map_err(|error| DataError::invalid(error.to_string()))?;
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(file, &source.schema())?;
    for unit in 0..source.units().len() {
        source.read(unit, &mut |block| {
            writer.write(&block)?;
            Ok(Flow::Continue)
        })?;
    }
    Ok(writer.finish()?)
}
