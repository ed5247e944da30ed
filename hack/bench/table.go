package main

import "slices"

// plain is what the registry is compared with.
const plain = "distribution's own handlers"

// figureTable is every promised figure with its goal. A name stands more than once when it has more than one goal.
func figureTable() []want {
	return slices.Concat(renderFigures(), serveFigures(), pullFigures(), pushFigures(), buildFigures(), trustFigures(),
		demoFigures(), deployFigures(), controllerFigures())
}

// renderFigures are promised for rendering: manifests/render.
func renderFigures() []want {
	return []want{
		{name: "render 1,000 configs of 5 files, whole command", from: "BenchmarkCommand/1000 ns/op", unit: "s",
			scale: toSeconds, goal: "value <= 3"},
		{name: "render 5,000 configs of 5 files, whole command", from: "BenchmarkCommand/5000 ns/op", unit: "s",
			scale: toSeconds, goal: "value <= 15"},
		{name: "render 1,000 configs, rendering alone", from: "BenchmarkRender/1000 ns/op", unit: "s", scale: toSeconds},
	}
}

// serveFigures are promised for the Ignition server: bootstrap/serve. At its rate a fleet of 1,000 nodes that boots at
// once has its configs within a second.
func serveFigures() []want {
	return []want{
		{name: "Ignition over TLS, 64 clients on the server's cores", from: "BenchmarkServe/identity requests/s",
			unit: "requests/s", goal: "value >= 1000"},
		{name: "Ignition over TLS, 64 clients on the server's cores, p99", from: "BenchmarkServe/identity p99-ms",
			unit: "ms", goal: "value <= 200"},
		{name: "Ignition over TLS in gzip, 64 clients on the server's cores", from: "BenchmarkServe/gzip requests/s",
			unit: "requests/s"},
	}
}

// pullFigures are promised for reads from the registry.
func pullFigures() []want {
	return []want{
		{name: "manifest GET over TLS, 32 clients", from: "BenchmarkManifestGet32Clients/tls/dayone req/s",
			unit: "requests/s", goal: "value >= 20000"},
		{name: "manifest GET over TLS against peer", from: "BenchmarkManifestGet32Clients/tls/dayone req/s",
			unit: "requests/s", peer: plain, peerFrom: "BenchmarkManifestGet32Clients/tls/distribution req/s",
			goal: "ratio >= 10"},
		{name: "manifest GET over TLS, 32 clients, p99", from: "BenchmarkManifestGet32Clients/tls/dayone p99-ms", unit: "ms",
			goal: "value <= 5"},
		{name: "manifest GET, plain, against peer", from: "BenchmarkManifestGet32Clients/plain/dayone req/s",
			unit: "requests/s", peer: plain, peerFrom: "BenchmarkManifestGet32Clients/plain/distribution req/s",
			goal: "ratio >= 10"},
		{name: "manifest GET, plain, p99", from: "BenchmarkManifestGet32Clients/plain/dayone p99-ms", unit: "ms",
			goal: "value <= 5"},
		{name: "blob GET of 4 KiB over TLS, 8 clients", from: "BenchmarkBlobGet/tls/4KiB/dayone req/s", unit: "requests/s",
			peer: plain, peerFrom: "BenchmarkBlobGet/tls/4KiB/distribution req/s", goal: "ratio >= 1.5"},
		{name: "blob GET of 1 MiB over TLS, 8 clients", from: "BenchmarkBlobGet/tls/1024KiB/dayone GiB/s", unit: "GiB/s",
			peer: plain, peerFrom: "BenchmarkBlobGet/tls/1024KiB/distribution GiB/s", goal: "ratio >= 1.5"},
		{name: "blob GET of 64 MiB over TLS, 8 clients", from: "BenchmarkBlobGet/tls/65536KiB/dayone GiB/s", unit: "GiB/s",
			goal: "value >= 2"},
		{name: "blob GET of 64 MiB over TLS against peer", from: "BenchmarkBlobGet/tls/65536KiB/dayone GiB/s", unit: "GiB/s",
			peer: plain, peerFrom: "BenchmarkBlobGet/tls/65536KiB/distribution GiB/s", goal: "ratio >= 0.9"},
		{name: "blob GET of 64 MiB over TLS against memory", from: "BenchmarkBlobGet/tls/65536KiB/dayone GiB/s",
			unit: "GiB/s", peer: "a server that sends one buffer", peerFrom: "BenchmarkBlobGet/tls/65536KiB/null GiB/s"},
		{name: "blob GET of 4 KiB, plain", from: "BenchmarkBlobGet/plain/4KiB/dayone req/s", unit: "requests/s", peer: plain,
			peerFrom: "BenchmarkBlobGet/plain/4KiB/distribution req/s", goal: "ratio >= 1.5"},
		{name: "blob GET of 1 MiB, plain", from: "BenchmarkBlobGet/plain/1024KiB/dayone GiB/s", unit: "GiB/s", peer: plain,
			peerFrom: "BenchmarkBlobGet/plain/1024KiB/distribution GiB/s", goal: "ratio >= 1.5"},
		{name: "blob GET of 64 MiB, plain", from: "BenchmarkBlobGet/plain/65536KiB/dayone GiB/s", unit: "GiB/s", peer: plain,
			peerFrom: "BenchmarkBlobGet/plain/65536KiB/distribution GiB/s", goal: "ratio >= 1.5"},
		{name: "200 concurrent pulls, server memory", from: "BenchmarkPulls200Clients server-MiB", unit: "MiB",
			goal: "value <= 100"},
	}
}

// pushFigures are promised for writes to the registry.
func pushFigures() []want {
	return []want{
		{name: "51 layers mounted, 1 MiB pushed, over TLS", from: "BenchmarkAppendPush/tls/mount/dayone ns/op", unit: "s",
			scale: toSeconds, peer: plain, peerFrom: "BenchmarkAppendPush/tls/mount/distribution ns/op", goal: "ratio <= 1"},
		{name: "51 layers looked for, 1 MiB pushed, over TLS", from: "BenchmarkAppendPush/tls/head/dayone ns/op", unit: "s",
			scale: toSeconds, peer: plain, peerFrom: "BenchmarkAppendPush/tls/head/distribution ns/op", goal: "ratio <= 1"},
		{name: "51 layers mounted, 1 MiB pushed, plain", from: "BenchmarkAppendPush/plain/mount/dayone ns/op", unit: "s",
			scale: toSeconds, peer: plain, peerFrom: "BenchmarkAppendPush/plain/mount/distribution ns/op",
			goal: "ratio <= 1"},
		{name: "51 layers looked for, 1 MiB pushed, plain", from: "BenchmarkAppendPush/plain/head/dayone ns/op", unit: "s",
			scale: toSeconds, peer: plain, peerFrom: "BenchmarkAppendPush/plain/head/distribution ns/op",
			goal: "ratio <= 1"},
		{name: "51 layers mounted, 1 MiB pushed, over TLS, ext4 with a journal",
			from: "BenchmarkAppendPushWithAJournal/tls/mount/dayone ns/op", unit: "s", scale: toSeconds, peer: plain,
			peerFrom: "BenchmarkAppendPushWithAJournal/tls/mount/distribution ns/op", goal: "ratio <= 1"},
		{name: "51 layers mounted, 1 MiB pushed, plain, ext4 with a journal",
			from: "BenchmarkAppendPushWithAJournal/plain/mount/dayone ns/op", unit: "s", scale: toSeconds, peer: plain,
			peerFrom: "BenchmarkAppendPushWithAJournal/plain/mount/distribution ns/op", goal: "ratio <= 1"},
		{name: "51 layers looked for, 1 MiB pushed, over TLS, ext4 with a journal",
			from: "BenchmarkAppendPushWithAJournal/tls/head/dayone ns/op", unit: "s", scale: toSeconds, peer: plain,
			peerFrom: "BenchmarkAppendPushWithAJournal/tls/head/distribution ns/op", goal: "ratio <= 1"},
		{name: "51 layers looked for, 1 MiB pushed, plain, ext4 with a journal",
			from: "BenchmarkAppendPushWithAJournal/plain/head/dayone ns/op", unit: "s", scale: toSeconds, peer: plain,
			peerFrom: "BenchmarkAppendPushWithAJournal/plain/head/distribution ns/op", goal: "ratio <= 1"},
		{name: "monolithic push of 64 MiB over TLS", from: "BenchmarkMonolithicPush64MiB/tls/dayone MiB/s", unit: "MiB/s",
			peer: plain, peerFrom: "BenchmarkMonolithicPush64MiB/tls/distribution MiB/s", goal: "ratio >= 0.95"},
		{name: "monolithic push of 64 MiB, plain", from: "BenchmarkMonolithicPush64MiB/plain/dayone MiB/s", unit: "MiB/s",
			peer: plain, peerFrom: "BenchmarkMonolithicPush64MiB/plain/distribution MiB/s", goal: "ratio >= 0.95"},
	}
}

// buildFigures are promised for image builds: build/buildahengine.
func buildFigures() []want {
	return []want{
		{name: "build, same request again", from: "BenchmarkLargeBase/no-op ns/op", unit: "s", scale: toSeconds,
			goal: "value <= 0.3"},
		{name: "config change, append, 1 GB base", from: "BenchmarkLargeBase/config-change-append ns/op", unit: "s",
			scale: toSeconds, goal: "value <= 0.5"},
		{name: "config change, append against cold buildah", from: "BenchmarkLargeBase/config-change-append ns/op", unit: "s",
			scale: toSeconds, peer: "buildah engine, cold storage",
			peerFrom: "BenchmarkLargeBase/config-change-buildah-cold ns/op", goal: "ratio <= 0.025"},
		{name: "config change, append against warm buildah", from: "BenchmarkLargeBase/config-change-append ns/op", unit: "s",
			scale: toSeconds, peer: "buildah engine, warm storage",
			peerFrom: "BenchmarkLargeBase/config-change-buildah-warm ns/op", goal: "ratio <= 0.334"},
		{name: "same Containerfile, buildah engine, cold storage", from: "BenchmarkAgainstCommandLine/cold engine-s",
			unit: "s", peer: "buildah build and push", peerFrom: "BenchmarkAgainstCommandLine/cold command-line-s",
			goal: "ratio <= 1.1"},
		{name: "same Containerfile, buildah engine, warm storage", from: "BenchmarkAgainstCommandLine/warm engine-s",
			unit: "s", peer: "buildah build and push", peerFrom: "BenchmarkAgainstCommandLine/warm command-line-s",
			goal: "ratio <= 1.1"},
		{name: "same Containerfile, whole builder, warm storage", from: "BenchmarkAgainstCommandLine/warm builder-s",
			unit: "s", peer: "buildah build and push", peerFrom: "BenchmarkAgainstCommandLine/warm command-line-s"},
		{name: "build of the sample, rendered to pushed, base taken in before", unit: "s",
			from: "BenchmarkFromRenderedToPushed build-s", peer: "buildah build and push, cold storage",
			peerFrom: "BenchmarkFromRenderedToPushed command-line-s", goal: "ratio <= 0.6"},
		{name: "taking in the base before it, cold storage", from: "BenchmarkFromRenderedToPushed take-in-s", unit: "s",
			peer: "buildah build and push, cold storage", peerFrom: "BenchmarkFromRenderedToPushed command-line-s"},
	}
}

// trustFigures are promised for what is beside an image: build/sign, build/sbom.
func trustFigures() []want {
	return []want{
		{name: "provenance, signature and a node's check, by the clock", from: "BenchmarkVouch ns/op", unit: "ms",
			scale: 1e-6, goal: "value <= 300"},
		{name: "provenance, signature and a node's check, processor", from: "BenchmarkVouch cpu-ms/op", unit: "ms"},
		{name: "bill of materials of 1 GB, 1,000 packages", from: "BenchmarkRead1GB ns/op", unit: "s", scale: toSeconds,
			goal: "value <= 5"},
		{name: "bill of materials of 1 GB, memory", from: "BenchmarkRead1GB peak-MiB", unit: "MiB", goal: "value <= 200"},
	}
}

// demoFigures are promised for make demo.
func demoFigures() []want {
	return []want{
		{name: "Day 1 of three masters, tiny base, pipeline", from: "Demo/tiny pipeline-s", unit: "s", goal: "value <= 3"},
		{name: "Day 1 of three masters, tiny base, whole command", from: "Demo/tiny command-s", unit: "s",
			goal: "value <= 40"},
		{name: "Day 1 of three masters, Debian base, pipeline", from: "Demo/debian pipeline-s", unit: "s",
			goal: "value <= 8"},
		{name: "Day 1 of three masters, Debian base, whole command", from: "Demo/debian command-s", unit: "s",
			goal: "value <= 90"},
	}
}

// deployFigures are promised for a node that gets its image: rebase/deploy, rebase/firstboot, hack/e2e/deployers.
func deployFigures() []want {
	return []want{
		{name: "import of 1 GB of which 5 % are missing", from: "BenchmarkImportOfTheMissingLayer/import ns/op", unit: "s",
			scale: toSeconds, peer: "unpacking the missing layer, unchecked",
			peerFrom: "BenchmarkImportOfTheMissingLayer/unpack ns/op", goal: "ratio <= 1.3"},
		{name: "stage of 1 GB of which 5 % are missing, without libostree's share",
			from: "BenchmarkStageOfTheMissingLayer/stage ns/op", minus: "BenchmarkStageOfTheMissingLayer/libostree ns/op",
			unit: "s", scale: toSeconds, peer: "unpacking the missing layer, unchecked",
			peerFrom: "BenchmarkStageOfTheMissingLayer/unpack ns/op", goal: "ratio <= 1.3"},
		{name: "the same, whole", from: "BenchmarkStageOfTheMissingLayer/stage ns/op", unit: "s", scale: toSeconds,
			peer: "unpacking the missing layer, unchecked", peerFrom: "BenchmarkStageOfTheMissingLayer/unpack ns/op"},
		{name: "libostree's own staged deployment in it", from: "BenchmarkStageOfTheMissingLayer/libostree ns/op", unit: "s",
			scale: toSeconds, peer: "unpacking the missing layer, unchecked",
			peerFrom: "BenchmarkStageOfTheMissingLayer/unpack ns/op"},
		{name: "the hard links alone in that, by all processors", from: "BenchmarkStageOfTheMissingLayer/links ns/op",
			unit: "s", scale: toSeconds, peer: "unpacking the missing layer, unchecked",
			peerFrom: "BenchmarkStageOfTheMissingLayer/unpack ns/op"},
		{name: "import of 1 GB into an empty repository", from: "BenchmarkFullPull/import ns/op", unit: "s", scale: toSeconds,
			peer: "skopeo copy and ostree commit", peerFrom: "BenchmarkFullPull/skopeo-ostree ns/op", goal: "ratio <= 1.25"},
		{name: "import of 1 GB, memory", from: "BenchmarkFullPull/import MiB", unit: "MiB", goal: "value <= 128"},
		{name: "first boot beside pull, stage and reboot", from: "BenchmarkOwnOverhead ns/op", unit: "s", scale: toSeconds,
			goal: "value <= 1"},
		{name: "soft reboot of a virtual machine, from the order to the verified image",
			from: "BenchmarkRebootInAVirtualMachine soft-s", unit: "s", peer: "a hard reboot of it",
			peerFrom: "BenchmarkRebootInAVirtualMachine hard-s", goal: "ratio <= 0.25"},
		{name: "firmware, boot loader, kernel and initramfs in that hard reboot",
			from: "BenchmarkRebootInAVirtualMachine hardware-s", unit: "s", peer: "a hard reboot of it",
			peerFrom: "BenchmarkRebootInAVirtualMachine hard-s"},
	}
}
