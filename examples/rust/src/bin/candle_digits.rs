//! Two workers learn to read handwritten digits with Candle: each has half of every batch, and both go down the mean of their gradients.
//!
//! In `examples/rust`: `cargo run --release --bin candle_digits`

use std::collections::BTreeMap;
use std::sync::PoisonError;

use candle_core::backprop::GradStore;
use candle_core::{D, DType, Device, Tensor, Var};
use candle_nn::{
    Conv2d, Conv2dConfig, Linear, Module, Optimizer, SGD, VarBuilder, VarMap, conv2d, linear, loss::cross_entropy,
};
use carril::{Op, Session, TrainResult, Trainer};
use carril_examples::{Arguments, Config, DIGITS, Digits, Images, Progress, SIDE, summary};

struct Network {
    convolution: Conv2d,
    output: Linear,
}

impl Network {
    fn new(weights: VarBuilder) -> candle_core::Result<Self> {
        let padding = Conv2dConfig { padding: 1, ..Default::default() };
        Ok(Self {
            convolution: conv2d(1, 16, 3, padding, weights.pp("convolution"))?,
            output: linear(16 * SIDE / 2 * SIDE / 2, DIGITS, weights.pp("output"))?,
        })
    }

    /// Ten numbers for each image: the greatest is at the digit that it shows.
    fn forward(&self, images: &Images) -> candle_core::Result<Tensor> {
        let pixels = Tensor::from_slice(&images.pixels, (images.len(), 1, SIDE, SIDE), &Device::Cpu)?;
        let seen = self.convolution.forward(&pixels)?.relu()?.max_pool2d(2)?;
        self.output.forward(&seen.flatten_from(1)?)
    }

    fn loss(&self, images: &Images) -> candle_core::Result<Tensor> {
        cross_entropy(&self.forward(images)?, &labels_of(images)?)
    }

    fn accuracy(&self, images: &Images) -> candle_core::Result<f64> {
        let right = self.forward(images)?.argmax(D::Minus1)?.to_dtype(DType::I64)?.eq(&labels_of(images)?)?;
        right.to_dtype(DType::F64)?.mean_all()?.to_scalar()
    }
}

fn labels_of(images: &Images) -> candle_core::Result<Tensor> {
    Tensor::from_slice(&images.labels, images.len(), &Device::Cpu)
}

/// The variables by name. `VarMap::all_vars` has them in another order in each process, and ranks must reduce them in the same one.
fn in_order(weights: &VarMap) -> Vec<Var> {
    let weights = weights.data().lock().unwrap_or_else(PoisonError::into_inner);
    weights.iter().collect::<BTreeMap<_, _>>().into_values().cloned().collect()
}

/// Candle's first weights are others in each process; these are the same on all ranks.
fn draw(variables: &[Var]) -> candle_core::Result<()> {
    let mut random = fastrand::Rng::with_seed(0);
    for variable in variables {
        let values: Vec<f32> = (0..variable.elem_count()).map(|_| 0.2 * random.f32() - 0.1).collect();
        variable.set(&Tensor::from_vec(values, variable.shape(), &Device::Cpu)?)?;
    }
    Ok(())
}

/// Each gradient becomes the mean of those of all ranks. They travel as one slice: one collective costs less than many.
fn average(session: &Session, variables: &[Var], gradients: &mut GradStore) -> TrainResult {
    let mut values = Vec::new();
    for variable in variables {
        let gradient = gradients.get(variable).expect("each variable has a part in the loss");
        values.extend(gradient.flatten_all()?.to_vec1::<f32>()?);
    }
    session.all_reduce(&mut values, Op::Mean)?;
    let mut rest = &values[..];
    for variable in variables {
        let (own, others) = rest.split_at(variable.elem_count());
        gradients.insert(variable, Tensor::from_slice(own, variable.shape(), &Device::Cpu)?);
        rest = others;
    }
    Ok(())
}

fn train(session: &Session, config: Config) -> TrainResult {
    let digits = Digits::load()?;
    let mut weights = VarMap::new();
    let network = Network::new(VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu))?;
    let variables = in_order(&weights);
    draw(&variables)?;
    let mut progress = Progress::default();
    if let Some(last) = session.latest_checkpoint()? {
        weights.load(last.path()?.join("network.safetensors"))?;
        progress = last.metrics().parse()?;
        println!("going on after epoch {}", progress.epoch);
    }
    // Without momentum: beside the weights there is nothing to save.
    let mut optimizer = SGD::new(variables.clone(), config.rate)?;
    while !progress.is_done(&config) {
        optimizer.set_learning_rate(config.rate * 0.95_f64.powf(progress.epoch as f64));
        let mut losses = Vec::new();
        for images in digits.learned.steps(session, progress.epoch) {
            let loss = network.loss(&images)?;
            let mut gradients = loss.backward()?;
            average(session, &variables, &mut gradients)?;
            optimizer.step(&gradients)?;
            losses.push(f64::from(loss.to_scalar::<f32>()?));
        }
        let loss = losses.iter().sum::<f64>() / losses.len() as f64;
        progress.add_epoch(loss, network.accuracy(&digits.validation)?, network.accuracy(&digits.test)?);
        match session.rank() {
            0 => session.report_and_save(&progress, |to| weights.save(to.join("network.safetensors")))?,
            _ => session.report(&progress)?,
        }
    }
    Ok(())
}

fn main() -> carril::Result<()> {
    carril::init!(train);
    let Arguments { workers, config, run } = Arguments::of_the_program(0.5);
    let result = Trainer::new(train, config).workers(workers).run_config(run).fit()?;
    println!("{}", summary(&result, workers)?);
    Ok(())
}
