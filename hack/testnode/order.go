package testnode

import (
	"cmp"
	"slices"
	"strconv"
)

// sortByVersion sorts names as boot loaders do: numbers by value, so that ostree-10 comes after ostree-9.
func sortByVersion(names []string) {
	slices.SortFunc(names, compareVersions)
}

func compareVersions(a, b string) int {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			va, _ := strconv.Atoi(a[:na])
			vb, _ := strconv.Atoi(b[:nb])
			if c := cmp.Compare(va, vb); c != 0 {
				return c
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits counts the digits s starts with.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}
