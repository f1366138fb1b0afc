"""A DataLoader with processes of its own, in workers, over a Dataset that is defined in this very script.

Run it with `python examples/dataloader_workers.py`.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from carril import train
from carril.train.torch import TorchTrainer, prepare_data_loader, prepare_model


class Parabola(Dataset):
    """Points of y = x * x, made by the loader's processes when they are asked for."""

    def __init__(self, count: int):
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.tensor([2.0 * index / self.count - 1.0])
        return x, x * x


def fit_parabola(config: dict) -> None:
    loader = DataLoader(Parabola(2048), batch_size=64, shuffle=True, num_workers=2, persistent_workers=True)
    loader = prepare_data_loader(loader)
    model = prepare_model(nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(config["epochs"]):
        seen = 0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(x)
        train.report({"epoch": epoch, "loss": loss.item(), "seen": seen})


if __name__ == "__main__":
    trainer = TorchTrainer(
        fit_parabola,
        train_loop_config={"epochs": 4},
        scaling_config=train.ScalingConfig(num_workers=2),
    )
    result = trainer.fit()
    print(f"loss {result.metrics['loss']:.4f}: each worker saw {result.metrics['seen']} of 2048 points in each epoch")
