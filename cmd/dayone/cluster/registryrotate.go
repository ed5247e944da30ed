package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
)

const (
	// defaultRotation is many times what a rotation takes when all nodes are on: about a minute.
	defaultRotation = 30 * time.Minute
	// rotationEvery is the pause between two looks at how far it is.
	rotationEvery = 2 * time.Second
)

// rotate is whose accounts are to be replaced.
type rotate struct {
	pools               []string
	builders, all, wait bool
	timeout             time.Duration
}

func newRegistryRotate(c *connect.Flags) *cobra.Command {
	var r rotate
	cmd := &cobra.Command{
		Use:   "rotate {--pool POOL | --builders | --all}",
		Short: "Replace accounts of pools and builders at the registries of the control plane",
		Long: "Rotate asks the controllers for other accounts: registries accept old and new, nodes and builds change " +
			"over, and the old one is refused.\nNo node drains or reboots, and no pull fails. The controllers do it by " +
			"themselves every 90 days; ask when an account has leaked.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(r.pools) == 0 && !r.builders && !r.all {
				return cli.Usagef("say whose accounts: --pool POOL, --builders or --all")
			}
			api, _, err := c.Client()
			if err != nil {
				return err
			}
			done, err := r.ask(cmd.Context(), api, c.Namespace)
			if err != nil {
				return err
			}
			if r.wait {
				if err := r.follow(cmd, api, c.Namespace, done); err != nil {
					return err
				}
			}
			return cli.PrintTable(cmd, "RegistryRotation", done, done.print)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&r.pools, "pool", nil, "the account of this pool's nodes (repeatable)")
	flags.BoolVar(&r.builders, "builders", false, "the account with which builds push")
	flags.BoolVar(&r.all, "all", false, "those of all pools and of builders")
	flags.BoolVar(&r.wait, "wait", false, "wait until the accounts before are refused")
	flags.DurationVar(&r.timeout, "timeout", defaultRotation, "time limit of --wait")
	_ = cmd.RegisterFlagCompletionFunc("pool", c.Value(mcfgv1.GroupVersion.WithKind("MachineConfigPool")))
	return cmd
}

// rotated is what was asked for, and what has come of it.
type rotated struct {
	// Asked is the text of the annotation.
	Asked    string            `json:"asked"`
	Accounts []replacedAccount `json:"accounts"`
}

// replacedAccount is of a pool or of the builders.
type replacedAccount struct {
	// Pool is its name; the builders have none.
	Pool string `json:"pool,omitempty"`
	// Before are the names of the accounts that were valid.
	Before []string `json:"before"`
	// Now is the one that replaced them, when they are refused.
	Now string `json:"now,omitempty"`
}

func (a replacedAccount) owner() string {
	if a.Pool == "" {
		return "builders"
	}
	return "pool " + a.Pool
}

// ask annotates those whose accounts are to be replaced; one that has none is refused before.
func (r rotate) ask(ctx context.Context, api client.Client, namespace string) (*rotated, error) {
	p, err := registrystatus.ReadPublished(ctx, api, namespace)
	if err != nil {
		return nil, err
	}
	if len(p.Accounts) == 0 {
		return nil, errors.New("neither pools nor builders have accounts yet: a pool gets one when the agent of a node has " +
			"made a key, see AccountsCurrent in dayone cluster registry status. Those of the installation are replaced by " +
			"dayone registry node-config --rotate")
	}
	have := slices.Sorted(maps.Keys(p.Accounts))
	owners := slices.Clone(r.pools)
	if r.builders {
		owners = append(owners, "")
	}
	if r.all {
		owners = have
	}
	done := &rotated{Asked: time.Now().UTC().Format(time.RFC3339Nano)}
	for _, owner := range owners {
		a := replacedAccount{Pool: owner, Before: p.Accounts[owner]}
		if len(a.Before) == 0 {
			return nil, fmt.Errorf("%s: there is no account; these have one: %s", a.owner(), strings.Join(named(have), ", "))
		}
		done.Accounts = append(done.Accounts, a)
	}
	for _, a := range done.Accounts {
		if err := annotate(ctx, api, namespace, a, done.Asked); err != nil {
			return nil, err
		}
	}
	return done, nil
}

func named(owners []string) (out []string) {
	for _, owner := range owners {
		out = append(out, replacedAccount{Pool: owner}.owner())
	}
	return out
}

// annotate asks for one account.
func annotate(ctx context.Context, api client.Client, namespace string, a replacedAccount, asked string) error {
	var on client.Object = &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: a.Pool}}
	if a.Pool == "" {
		on = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster.RegistryPush}}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		manifests.AnnotationRotateAccount: asked}}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if err := api.Patch(ctx, on, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("ask for another account of %s: %w", a.owner(), err)
	}
	return nil
}

// follow says how far the accounts are until all are replaced.
func (r rotate) follow(cmd *cobra.Command, api client.Client, namespace string, done *rotated) error {
	look := func(p *registrystatus.Published) ([]string, bool) { return done.look(p), done.settled() }
	said, err := followPublished(cmd, r.timeout, api, namespace, look)
	if errors.Is(err, errNotYet) {
		return fmt.Errorf("the accounts are not replaced after %s: %s. The controllers go on: dayone cluster "+
			"registry status shows what they wait for", r.timeout, said)
	}
	return err
}

// errNotYet: what was asked for has not come in time.
var errNotYet = errors.New("time is over")

// followPublished looks at what the controllers publish until look says that all is done, and prints each line that it
// gives once. At the end of its time it gives the last lines and errNotYet.
func followPublished(cmd *cobra.Command, limit time.Duration, api client.Client, namespace string,
	look func(*registrystatus.Published) (lines []string, done bool)) (said string, err error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	defer cancel()
	tick := time.NewTicker(rotationEvery)
	defer tick.Stop()
	var last []string
	for {
		p, err := registrystatus.ReadPublished(ctx, api, namespace)
		if err == nil {
			lines, done := look(p)
			sayNew(cmd.ErrOrStderr(), lines, last)
			if last = lines; done {
				return "", nil
			}
		} else if ctx.Err() == nil {
			last = []string{err.Error()}
		}
		select {
		case <-ctx.Done():
			if cmd.Context().Err() != nil {
				return "", cmd.Context().Err()
			}
			return strings.Join(last, "; "), errNotYet
		case <-tick.C:
		}
	}
}

// sayNew prints the lines that were not among those before.
func sayNew(to io.Writer, lines, before []string) {
	for _, line := range lines {
		if !slices.Contains(before, line) {
			fmt.Fprintln(to, line)
		}
	}
}

// look notes which accounts are replaced, and says it in words.
func (d *rotated) look(p *registrystatus.Published) (lines []string) {
	for i := range d.Accounts {
		a := &d.Accounts[i]
		now := p.Accounts[a.Pool]
		old := slices.ContainsFunc(now, func(name string) bool { return slices.Contains(a.Before, name) })
		switch {
		case len(now) == 1 && !old:
			a.Now = now[0]
			lines = append(lines, fmt.Sprintf("%s: %s is refused, %s is in use", a.owner(), strings.Join(a.Before, ", "), a.Now))
		case len(now) > len(a.Before):
			lines = append(lines, a.owner()+": the registries get to know a new account beside the old one, then users "+
				"change over")
		case slices.Equal(now, a.Before) && a.Pool == "":
			lines = append(lines, a.owner()+": asked, the controllers look at the Secret within five minutes")
		default:
			lines = append(lines, a.owner()+": asked")
		}
	}
	if c := meta.FindStatusCondition(p.Conditions, registrystatus.ConditionAccounts); c != nil && !d.settled() &&
		c.Status != metav1.ConditionTrue {
		lines = append(lines, "waits: "+c.Message)
	}
	return lines
}

func (d *rotated) settled() bool {
	return !slices.ContainsFunc(d.Accounts, func(a replacedAccount) bool { return a.Now == "" })
}

func (d *rotated) print(w io.Writer) {
	fmt.Fprint(w, "ACCOUNT OF\tBEFORE\tNOW\n")
	for _, a := range d.Accounts {
		now := a.Now
		if now == "" {
			now = "asked: see AccountsCurrent in dayone cluster registry status"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", a.owner(), strings.Join(a.Before, ", "), now)
	}
}
