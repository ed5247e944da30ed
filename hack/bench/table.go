package main

// figureTable is every promised figure with its goal. A name stands more than once when it has more than one goal.
func figureTable() []want {
	const plain = "distribution's own handlers"
	return []want{
		{name: "render 1,000 configs of 5 files, whole command", from: "BenchmarkCommand/1000 ns/op", unit: "s", scale: toSeconds, goal: "value <= 0.5"},
		{name: "render 5,000 configs of 5 files, whole command", from: "BenchmarkCommand/5000 ns/op", unit: "s", scale: toSeconds, goal: "value <= 2.5"},
		{name: "render 1,000 configs, rendering alone", from: "BenchmarkRender/1000 ns/op", unit: "s", scale: toSeconds},
		{name: "Ignition over TLS, 64 clients", from: "BenchmarkServe/identity requests/s", unit: "requests/s", goal: "value >= 5000"},
		{name: "Ignition over TLS, 64 clients, p99", from: "BenchmarkServe/identity p99-ms", unit: "ms", goal: "value <= 20"},
		{name: "manifest GET, 32 clients", from: "BenchmarkManifestGet32Clients/dayone req/s", unit: "requests/s", goal: "value >= 20000"},
		{name: "manifest GET against peer", from: "BenchmarkManifestGet32Clients/dayone req/s", unit: "requests/s", peer: plain, peerFrom: "BenchmarkManifestGet32Clients/distribution req/s", goal: "ratio >= 10"},
		{name: "manifest GET, 32 clients, p99", from: "BenchmarkManifestGet32Clients/dayone p99-ms", unit: "ms", goal: "value <= 5"},
		{name: "blob GET, 8 clients", from: "BenchmarkBlobGet8Clients/dayone GiB/s", unit: "GiB/s", goal: "value >= 2.5"},
		{name: "blob GET against peer", from: "BenchmarkBlobGet8Clients/dayone GiB/s", unit: "GiB/s", peer: plain, peerFrom: "BenchmarkBlobGet8Clients/distribution GiB/s", goal: "ratio >= 1.5"},
		{name: "append 1 MiB to 51 layers and push", from: "BenchmarkAppendPush/dayone ns/op", unit: "s", scale: toSeconds, peer: plain, peerFrom: "BenchmarkAppendPush/distribution ns/op", goal: "ratio <= 0.334"},
		{name: "monolithic push of 64 MiB", from: "BenchmarkMonolithicPush64MiB/dayone ns/op", unit: "s", scale: toSeconds, peer: plain, peerFrom: "BenchmarkMonolithicPush64MiB/distribution ns/op", goal: "ratio <= 1"},
		{name: "200 concurrent pulls, server memory", from: "BenchmarkPulls200Clients server-MiB", unit: "MiB", goal: "value <= 256"},
		{name: "build, same request again", from: "BenchmarkLargeBase/no-op ns/op", unit: "s", scale: toSeconds, goal: "value <= 0.3"},
		{name: "config change, append, 1 GB base", from: "BenchmarkLargeBase/config-change-append ns/op", unit: "s", scale: toSeconds, goal: "value <= 0.5"},
		{name: "config change, append against cold buildah", from: "BenchmarkLargeBase/config-change-append ns/op", unit: "s", scale: toSeconds, peer: "buildah engine, cold storage", peerFrom: "BenchmarkLargeBase/config-change-buildah-cold ns/op", goal: "ratio <= 0.025"},
		{name: "config change, append against warm buildah", from: "BenchmarkLargeBase/config-change-append ns/op", unit: "s", scale: toSeconds, peer: "buildah engine, warm storage", peerFrom: "BenchmarkLargeBase/config-change-buildah-warm ns/op", goal: "ratio <= 0.334"},
		{name: "same Containerfile, buildah engine, cold storage", from: "BenchmarkAgainstCommandLine/cold engine-s", unit: "s", peer: "buildah build and push", peerFrom: "BenchmarkAgainstCommandLine/cold command-line-s", goal: "ratio <= 1.1"},
		{name: "same Containerfile, buildah engine, warm storage", from: "BenchmarkAgainstCommandLine/warm engine-s", unit: "s", peer: "buildah build and push", peerFrom: "BenchmarkAgainstCommandLine/warm command-line-s", goal: "ratio <= 1.1"},
		{name: "same Containerfile, whole builder, warm storage", from: "BenchmarkAgainstCommandLine/warm builder-s", unit: "s", peer: "buildah build and push", peerFrom: "BenchmarkAgainstCommandLine/warm command-line-s"},
		{name: "Day 1 of three masters, tiny base, pipeline", from: "Demo/tiny pipeline-s", unit: "s", goal: "value <= 20"},
		{name: "Day 1 of three masters, tiny base, whole command", from: "Demo/tiny command-s", unit: "s", goal: "value <= 40"},
		{name: "Day 1 of three masters, Debian base, pipeline", from: "Demo/debian pipeline-s", unit: "s", goal: "value <= 45"},
		{name: "Day 1 of three masters, Debian base, whole command", from: "Demo/debian command-s", unit: "s", goal: "value <= 90"},
		{name: "import of 1 GB of which 5 % are missing", from: "BenchmarkImportOfTheMissingLayer/import ns/op", unit: "s", scale: toSeconds, peer: "unpacking the missing layer, unchecked", peerFrom: "BenchmarkImportOfTheMissingLayer/unpack ns/op", goal: "ratio <= 1.3"},
		{name: "import of 1 GB into an empty repository", from: "BenchmarkFullPull/import ns/op", unit: "s", scale: toSeconds, peer: "skopeo copy and ostree commit", peerFrom: "BenchmarkFullPull/skopeo-ostree ns/op", goal: "ratio <= 1.25"},
		{name: "import of 1 GB, memory", from: "BenchmarkFullPull/import MiB", unit: "MiB", goal: "value <= 128"},
		{name: "first boot beside pull, stage and reboot", from: "BenchmarkOwnOverhead ns/op", unit: "s", scale: toSeconds, goal: "value <= 1"},
	}
}
