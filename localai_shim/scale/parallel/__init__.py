"""One model over several processes: a leader, which has the engine, and followers, which repeat its calls."""
