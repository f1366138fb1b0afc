//! Two workers learn to read handwritten digits with Burn: each has half of every batch, and both go down the mean of their gradients.
//!
//! In `examples/rust`: `cargo run --release --bin burn_digits`

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor, TensorData};
use carril::{Op, Session, TrainResult, Trainer};
use carril_examples::{Arguments, Config, DIGITS, Digits, Images, Progress, SIDE, summary};

#[derive(Module, Debug)]
struct Network {
    convolution: Conv2d,
    pool: MaxPool2d,
    output: Linear,
}

impl Network {
    fn new(device: &Device) -> Self {
        Self {
            convolution: Conv2dConfig::new([1, 16], [3, 3]).with_padding(PaddingConfig2d::Same).init(device),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            output: LinearConfig::new(16 * SIDE / 2 * SIDE / 2, DIGITS).init(device),
        }
    }

    /// Ten numbers for each image: the greatest is at the digit that it shows.
    fn forward(&self, images: &Images) -> Tensor<2> {
        let pixels = TensorData::new(images.pixels.clone(), [images.len(), 1, SIDE, SIDE]);
        let pixels = Tensor::<4>::from_data(pixels, &self.devices()[0]);
        let seen = self.pool.forward(relu(self.convolution.forward(pixels)));
        self.output.forward(seen.flatten(1, 3))
    }

    fn loss(&self, images: &Images) -> Tensor<1> {
        let device = &self.devices()[0];
        CrossEntropyLossConfig::new().init(device).forward(self.forward(images), labels_of(images, device))
    }

    fn accuracy(&self, images: &Images) -> f64 {
        let read: Tensor<1, Int> = self.forward(images).argmax(1).flatten(0, 1);
        let right = read.equal(labels_of(images, &self.devices()[0])).int().sum().into_scalar::<i64>();
        right as f64 / images.len() as f64
    }
}

fn labels_of(images: &Images, device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(images.labels.clone(), [images.len()]), device)
}

/// Takes the gradients out, in the order of the network's fields, which is the same on all ranks.
struct Take<'a> {
    gradients: &'a GradientsParams,
    values: Vec<f32>,
}

impl ModuleVisitor for Take<'_> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let gradient = self.gradients.get::<D>(parameter.id).expect("each parameter has a part in the loss");
        self.values.extend(gradient.into_data().iter::<f32>());
    }
}

/// Puts them back in the same order.
struct Put<'a> {
    gradients: &'a mut GradientsParams,
    rest: &'a [f32],
}

impl ModuleVisitor for Put<'_> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let gradient = self.gradients.get::<D>(parameter.id).expect("it was taken out");
        let (own, others) = self.rest.split_at(gradient.shape().num_elements());
        let data = TensorData::new(own.to_vec(), gradient.shape());
        self.gradients.register(parameter.id, Tensor::<D>::from_data(data, &gradient.device()));
        self.rest = others;
    }
}

/// Each gradient becomes the mean of those of all ranks. They travel as one slice: one collective costs less than many.
fn average(session: &Session, network: &Network, gradients: &mut GradientsParams) -> TrainResult {
    let mut taken = Take { gradients, values: Vec::new() };
    network.visit(&mut taken);
    let mut values = taken.values;
    session.all_reduce(&mut values, Op::Mean)?;
    network.visit(&mut Put { gradients, rest: &values });
    Ok(())
}

fn train(session: &Session, config: Config) -> TrainResult {
    let digits = Digits::load()?;
    let device = Device::flex().autodiff();
    device.seed(0); // the same first weights on all ranks
    let mut network = Network::new(&device);
    let mut optimizer = AdamConfig::new().init();
    let mut progress = Progress::default();
    if let Some(last) = session.latest_checkpoint()? {
        network = network.try_load_file(last.path()?.join("network.bpk"))?;
        optimizer = optimizer.load(last.path()?.join("optimizer.bpk"))?;
        progress = last.metrics().parse()?;
        println!("going on after epoch {}", progress.epoch);
    }
    while !progress.is_done(&config) {
        let mut losses = Vec::new();
        for images in digits.learned.steps(session, progress.epoch) {
            let loss = network.loss(&images);
            let mut gradients = GradientsParams::from_grads(loss.backward(), &network);
            average(session, &network, &mut gradients)?;
            network = optimizer.step(config.rate, network, gradients);
            losses.push(loss.into_scalar::<f64>());
        }
        let (loss, judged) = (losses.iter().sum::<f64>() / losses.len() as f64, network.valid());
        progress.add_epoch(loss, judged.accuracy(&digits.validation), judged.accuracy(&digits.test));
        match session.rank() {
            0 => session.report_and_save(&progress, |to| {
                network.clone().save_file(to.join("network.bpk"))?;
                optimizer.save(to.join("optimizer.bpk"))
            })?,
            _ => session.report(&progress)?,
        }
    }
    Ok(())
}

fn main() -> carril::Result<()> {
    carril::init!(train);
    let Arguments { workers, config, run } = Arguments::of_the_program(0.005);
    let result = Trainer::new(train, config).workers(workers).run_config(run).fit()?;
    println!("{}", summary(&result, workers)?);
    Ok(())
}
