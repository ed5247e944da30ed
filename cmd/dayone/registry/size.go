package registry

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// size is a flag's number of bytes: 1000, 200MiB, 200Mi or 2GB.
type size int64

func (s *size) String() string { return strconv.FormatInt(int64(*s), 10) }

// Type implements pflag.Value.
func (*size) Type() string { return "size" }

// Set implements pflag.Value.
func (s *size) Set(text string) error {
	q, err := resource.ParseQuantity(strings.TrimSuffix(text, "B"))
	if err != nil || q.Sign() < 0 || q.Cmp(*resource.NewQuantity(q.Value(), resource.BinarySI)) != 0 {
		return fmt.Errorf("%q is no size: give bytes, or a number with a unit as 200MiB or 2GB", text)
	}
	*s = size(q.Value())
	return nil
}
