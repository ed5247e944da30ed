package main

// controllerRooms are the packages that measure what works in a cluster.
func controllerRooms() []room {
	return []room{{pkg: "./build/buildcontroller", bench: "^BenchmarkFleet$", time: "1x", once: true},
		{pkg: "./manifests/assets/cluster", bench: "^BenchmarkAdmission$", time: "1x", once: true},
		{pkg: "./cmd/dayone-controller", bench: "^Benchmark(Rollout|Advisor)5000$", time: "1x", once: true},
		{pkg: "./cmd/dayone/plan", bench: "^Benchmark(ClusterPlan|Status)5000$", time: "3x"},
		{pkg: "./rebase/rollout", bench: "^Benchmark(Make5000|Makespan5000|Look5000)$", time: "3x"}}
}

// controllerFigures are promised for 500 opted-in pools, and for 5,000 nodes.
func controllerFigures() []want {
	const fleet = "machine-os-builder, 500 pools: "
	const advisor = "advisor beside 5,000 nodes on a real API server: "
	const rollout = "rollout of 5,000 nodes on a real API server: "
	return []want{
		{name: fleet + "start until every pool was looked at", from: "BenchmarkFleet start-s", unit: "s", goal: "value <= 5"},
		{name: fleet + "processor while nothing changes", from: "BenchmarkFleet steady-cpu-%", unit: "%", goal: "value <= 1"},
		{name: fleet + "writes in 10 s while nothing changes", from: "BenchmarkFleet steady-writes", unit: "writes",
			goal: "value <= 0"},
		{name: fleet + "edit of a MachineOSConfig until its Job", from: "BenchmarkFleet edit-to-job-ms", unit: "ms",
			goal: "value <= 1000"},
		{name: fleet + "memory with 5,000 nodes", from: "BenchmarkFleet MiB", unit: "MiB", goal: "value <= 200"},
		{name: "admission policies, added to a write, p99", from: "BenchmarkAdmission added-p99-ms", unit: "ms",
			goal: "value <= 5"},
		{name: "admission policies, added to a write, median", from: "BenchmarkAdmission added-median-ms", unit: "ms"},
		{name: rollout + "writes of the controllers for each node and phase", from: "BenchmarkRollout5000 writes/node-phase",
			unit: "writes", goal: "value <= 2"},
		{name: rollout + "most nodes away at once, of those that may be", from: "BenchmarkRollout5000 most-away",
			unit: "times", goal: "value <= 1"},
		{name: rollout + "simulated time against the shortest possible", from: "BenchmarkRollout5000 makespan-ratio",
			unit: "times", goal: "value <= 1.05"},
		{name: rollout + "one decision, from the objects in memory", from: "BenchmarkRollout5000 ms/decision", unit: "ms",
			goal: "value <= 50"},
		{name: rollout + "dayone-controller, most memory", from: "BenchmarkRollout5000 peak-MiB", unit: "MiB",
			goal: "value <= 300"},
		{name: rollout + "dayone-controller, heap afterwards", from: "BenchmarkRollout5000 heap-MiB", unit: "MiB"},
		{name: rollout + "writes in 10 s of heartbeats afterwards", from: "BenchmarkRollout5000 idle-writes", unit: "writes",
			goal: "value <= 0"},
		{name: rollout + "processor meanwhile", from: "BenchmarkRollout5000 idle-cpu-%", unit: "%"},
		{name: rollout + "time on this machine", from: "BenchmarkRollout5000 wall-s", unit: "s"},
		{name: advisor + "new rendered config until its forecast is published", from: "BenchmarkAdvisor5000 forecast-s",
			unit: "s", goal: "value <= 5"},
		{name: advisor + "requests while nothing changes but heartbeats, its lease included",
			from: "BenchmarkAdvisor5000 idle-requests/s", unit: "requests/s",
			goal: "value <= 1"},
		{name: advisor + "dayone-controller, most memory", from: "BenchmarkAdvisor5000 peak-MiB", unit: "MiB",
			goal: "value <= 256"},
		{name: advisor + "published", from: "BenchmarkAdvisor5000 KiB-published", unit: "KiB"},
		{name: "forecast of a change on a dump of 5,000 nodes, whole command", from: "BenchmarkClusterPlan5000 ns/op",
			unit: "s", scale: toSeconds, goal: "value <= 1"},
		{name: "forecast of a change on a dump of 5,000 nodes, most memory", from: "BenchmarkClusterPlan5000 peak-MiB",
			unit: "MiB", goal: "value <= 300"},
		{name: "status of a cluster of 5,000 nodes, whole command", from: "BenchmarkStatus5000 ns/op", unit: "s",
			scale: toSeconds, goal: "value <= 1"},
		{name: "status --nodes of 5,000 nodes, whole command", from: "BenchmarkStatus5000 nodes-s", unit: "s"},
		{name: "status --nodes of 5,000 nodes, most memory", from: "BenchmarkStatus5000 nodes-peak-MiB", unit: "MiB"},
		{name: "rollout planner, one decision for 5,000 nodes", from: "BenchmarkMake5000 ns/op", unit: "ms", scale: 1e-6,
			goal: "value <= 50"},
		{name: "rollout planner, one decision from 5,000 Nodes of which ten have changed", from: "BenchmarkLook5000 ns/op",
			unit: "ms", scale: 1e-6, goal: "value <= 50"},
		{name: "rollout of 5,000 nodes, simulated time against the shortest possible",
			from: "BenchmarkMakespan5000 makespan-ratio", unit: "times", goal: "value <= 1.05"},
	}
}
