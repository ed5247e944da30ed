package firstboot

import (
	"fmt"
	"sort"
	"strings"

	"github.com/sirupsen/logrus"
)

// ConsoleFormat writes log entries as people read them on a node's console: "dayone-firstboot: message (key value, …)".
type ConsoleFormat struct{}

// Format renders one entry as one line.
func (ConsoleFormat) Format(e *logrus.Entry) ([]byte, error) {
	var b strings.Builder
	b.WriteString("dayone-firstboot: ")
	b.WriteString(e.Message)
	if cause, ok := e.Data[logrus.ErrorKey]; ok {
		fmt.Fprintf(&b, ": %v", cause)
	}
	var details []string
	for key, value := range e.Data {
		if key != logrus.ErrorKey {
			details = append(details, fmt.Sprintf("%s %v", key, value))
		}
	}
	if len(details) > 0 {
		sort.Strings(details)
		b.WriteString(" (" + strings.Join(details, ", ") + ")")
	}
	return []byte(strings.ReplaceAll(b.String(), "\n", " ") + "\n"), nil
}
