"""What is seen of a real host while something goes on there."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.clock import SystemClock
from node.execution import process, surroundings
from node.execution.neighbours import Neighbourhood, Stay
from node.execution.surroundings import Observation, Observed
from node.execution.versions import Versions
from node.ids import new_id
from node.model.errors import HostError
from node.plugins.registry import tools
