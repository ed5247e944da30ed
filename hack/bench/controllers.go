package main

// controllerRooms are the packages that measure what works in a cluster.
func controllerRooms() []room {
	return []room{{pkg: "./build/buildcontroller", bench: "^BenchmarkFleet$", time: "1x", once: true},
		{pkg: "./rebase/rollout", bench: "^Benchmark(Make5000|Makespan5000)$", time: "3x"}}
}

// controllerFigures are promised for 500 opted-in pools and 5,000 nodes.
func controllerFigures() []want {
	const fleet = "machine-os-builder, 500 pools: "
	return []want{
		{name: fleet + "start until every pool was looked at", from: "BenchmarkFleet start-s", unit: "s", goal: "value <= 5"},
		{name: fleet + "processor while nothing changes", from: "BenchmarkFleet steady-cpu-%", unit: "%", goal: "value <= 1"},
		{name: fleet + "writes in 10 s while nothing changes", from: "BenchmarkFleet steady-writes", unit: "writes", goal: "value <= 0"},
		{name: fleet + "edit of a MachineOSConfig until its Job", from: "BenchmarkFleet edit-to-job-ms", unit: "ms", goal: "value <= 1000"},
		{name: fleet + "memory with 5,000 nodes", from: "BenchmarkFleet MiB", unit: "MiB", goal: "value <= 200"},
		{name: "rollout planner, one decision for 5,000 nodes", from: "BenchmarkMake5000 ns/op", unit: "ms", scale: 1e-6, goal: "value <= 50"},
		{name: "rollout of 5,000 nodes, simulated time against the shortest possible", from: "BenchmarkMakespan5000 makespan-ratio", unit: "times", goal: "value <= 1.05"},
	}
}
