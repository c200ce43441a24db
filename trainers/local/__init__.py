"""Training on one machine with PyTorch."""

from agentbench_credit.trainer import Trainer
from agentbench_credit.trainers.local.checkpoint import newest_checkpoint
from agentbench_credit.trainers.local.trainer import train

TRAINER = Trainer("local", train, newest_checkpoint)
