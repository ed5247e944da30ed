package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// room is a package with benchmarks.
type room struct {
	pkg string
	// bench selects, time is -benchtime.
	bench, time string
	// once: too slow to repeat for a median.
	once bool
}

func rooms() []room {
	own := []room{
		{pkg: "./manifests/render", bench: "^Benchmark(Command|Render)$", time: "3x"},
		{pkg: "./bootstrap/serve", bench: "^BenchmarkServe$", time: "3s"},
		{pkg: "./registry", bench: ".", time: "1s"},
		{pkg: "./build/buildahengine", bench: "^Benchmark(LargeBase|AgainstCommandLine|FromRenderedToPushed)$",
			time: "3x", once: true},
		{pkg: "./rebase/deploy/pull", bench: "^Benchmark(ImportOfTheMissingLayer|FullPull)$", time: "3x", once: true},
		{pkg: "./hack/e2e/deployers", bench: "^BenchmarkStageOfTheMissingLayer$", time: "3x", once: true},
		{pkg: "./hack/e2e", bench: "^BenchmarkRebootInAVirtualMachine$", time: "1x", once: true},
		{pkg: "./build/sign", bench: "^BenchmarkVouch$", time: "20x"},
		{pkg: "./build/sbom", bench: "^BenchmarkRead1GB$", time: "2x"},
		{pkg: "./rebase/firstboot", bench: "^BenchmarkOwnOverhead$", time: "20x"},
		{pkg: "hack/demo"},
	}
	return append(own, controllerRooms()...)
}

// results maps "Benchmark/sub unit" to the median of its runs.
type results map[string]float64

func measure(ctx context.Context, list []room, only string, count int) (results, error) {
	all := results{}
	for _, r := range list {
		if !strings.Contains(r.pkg, only) {
			continue
		}
		fmt.Fprintf(os.Stderr, "bench: %s\n", r.pkg)
		var err error
		if r.pkg == "hack/demo" {
			err = demos(ctx, count, all)
		} else {
			err = r.run(ctx, count, all)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (r room) run(ctx context.Context, count int, all results) error {
	if r.once {
		count = 1
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", r.bench, "-benchtime", r.time, "-count",
		strconv.Itoa(count), "-timeout", "30m", r.pkg)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("benchmark %s: %w: %s%s", r.pkg, err, out, stderr.String())
	}
	runs := map[string][]float64{}
	for scan := bufio.NewScanner(bytes.NewReader(out)); scan.Scan(); {
		for key, value := range parseLine(scan.Text()) {
			runs[key] = append(runs[key], value)
		}
	}
	if len(runs) == 0 {
		return fmt.Errorf("benchmark %s: no benchmark matches %s", r.pkg, r.bench)
	}
	for key, values := range runs {
		all[key] = median(values)
	}
	return nil
}

// procs is the -GOMAXPROCS suffix that go test appends to a benchmark's name.
var procs = regexp.MustCompile(`-\d+$`)

// parseLine reads a line in the Go benchmark format: name, iterations, then pairs of value and unit.
func parseLine(line string) map[string]float64 {
	fields := strings.Fields(line)
	if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
		return nil
	}
	name := procs.ReplaceAllString(fields[0], "")
	out := map[string]float64{}
	for i := 2; i+1 < len(fields); i += 2 {
		if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
			out[name+" "+fields[i+1]] = v
		}
	}
	return out
}

func median(values []float64) float64 {
	slices.Sort(values)
	mid := len(values) / 2
	if len(values)%2 == 1 {
		return values[mid]
	}
	return (values[mid-1] + values[mid]) / 2
}

// demos runs Day 1 of three masters with both base images: a first run fills the caches, the medians of the others
// count.
func demos(ctx context.Context, count int, all results) error {
	for _, d := range []struct {
		name  string
		flags []string
	}{{"tiny", []string{"--tiny"}}, {"debian", nil}} {
		var pipelines, commands []float64
		for n := range count + 1 {
			pipeline, command, err := demo(ctx, d.flags)
			if err != nil {
				return err
			}
			if n > 0 {
				pipelines, commands = append(pipelines, pipeline.Seconds()), append(commands, command.Seconds())
			}
		}
		all["Demo/"+d.name+" pipeline-s"], all["Demo/"+d.name+" command-s"] = median(pipelines), median(commands)
	}
	return nil
}

// demo runs the demo once: how long its pipeline took, and the whole command.
func demo(ctx context.Context, flags []string) (pipeline, command time.Duration, err error) {
	work, err := os.MkdirTemp("", "dayone-bench-")
	if err != nil {
		return 0, 0, fmt.Errorf("make work directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	began := time.Now()
	cmd := exec.CommandContext(ctx, "bin/demo", append(slices.Clone(flags), "--work", work)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, 0, fmt.Errorf("run demo: %w: %s", err, out)
	}
	command = time.Since(began)
	raw, err := os.ReadFile(filepath.Join(work, "report.json"))
	if err != nil {
		return 0, 0, fmt.Errorf("read report of the demo: %w", err)
	}
	var report struct {
		Duration time.Duration `json:"durationNanoseconds"`
	}
	if err := json.Unmarshal(raw, &report); err != nil {
		return 0, 0, fmt.Errorf("read report of the demo: %w", err)
	}
	return report.Duration, command, nil
}
