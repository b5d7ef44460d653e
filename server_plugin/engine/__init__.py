"""The simulation inside the engine process: gate, scheduler, mock model, platform."""
