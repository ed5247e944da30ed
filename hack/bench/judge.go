package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// want is a row of the table: where its value comes from and what it must reach.
type want struct {
	name, from, unit string
	// minus is a part of the value that does not belong to it, "" for none.
	minus string
	// scale multiplies the measured value, 0 means 1.
	scale float64
	// peer and peerFrom are what it is compared with.
	peer, peerFrom string
	goal           string
}

const toSeconds = 1e-9

// judge makes the figures whose values were measured; rows of rooms that were left out are left out, and so is a goal
// on the ratio to a peer that this machine does not have.
func judge(table []want, measured results) ([]Figure, error) {
	figures := []Figure{}
	for _, w := range table {
		value, ok := measured[w.from]
		if !ok {
			continue
		}
		minus, ok := measured[w.minus]
		if w.minus != "" && !ok {
			continue
		}
		f := Figure{Name: w.name, Value: (value - minus) * scaleOf(w), Unit: w.unit}
		if peer, ok := measured[w.peerFrom]; ok && w.peerFrom != "" {
			peer *= scaleOf(w)
			ratio := f.Value / peer
			f.Peer, f.PeerValue, f.Ratio = &w.peer, &peer, &ratio
		} else if w.peerFrom != "" && strings.HasPrefix(w.goal, "ratio ") {
			fmt.Fprintf(os.Stderr, "bench: left out, since %s was not measured: %s\n", w.peer, w.name)
			continue
		}
		if w.goal != "" {
			holds, err := f.meets(w.goal)
			if err != nil {
				return nil, err
			}
			f.Goal, f.Holds = &w.goal, &holds
		}
		figures = append(figures, f)
	}
	return figures, nil
}

func scaleOf(w want) float64 {
	if w.scale == 0 {
		return 1
	}
	return w.scale
}

// meets reads a goal of the form "value|ratio <=|>= NUMBER".
func (f Figure) meets(goal string) (bool, error) {
	parts := strings.Fields(goal)
	if len(parts) != 3 {
		return false, fmt.Errorf("goal %q is not of the form \"value <= 1\"", goal)
	}
	bound, err := strconv.ParseFloat(parts[2], 64)
	if err != nil {
		return false, fmt.Errorf("goal %q: %w", goal, err)
	}
	value := f.Value
	if parts[0] == "ratio" {
		if f.Ratio == nil {
			return false, fmt.Errorf("goal %q of %s: the peer was not measured", goal, f.Name)
		}
		value = *f.Ratio
	}
	if parts[1] == "<=" {
		return value <= bound, nil
	}
	return value >= bound, nil
}
