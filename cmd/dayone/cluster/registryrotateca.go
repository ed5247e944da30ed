package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
	"dayone.dev/dayone/registry/authority"
)

// rotateCA is how the CA is to be replaced.
type rotateCA struct {
	now, wait bool
	without   []string
	timeout   time.Duration
}

func newRegistryRotateCA(c *connect.Flags) *cobra.Command {
	var r rotateCA
	cmd := &cobra.Command{
		Use:   "rotate-ca",
		Short: "Replace the CA of the registries of the control plane",
		Long: "Rotate-ca asks the controllers for another CA: nodes get to trust it beside the one in use, then the " +
			"registries make\ncertificates of it, then nodes let the one before go. No node drains or reboots, and no pull " +
			"fails. The controllers do it by\nthemselves in the last fifth of a CA's lifetime; ask when its key has leaked. " +
			"A step waits for each node; for one that is off, a\nday. While a rotation runs, --now and --without change what " +
			"it waits for.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
			return cli.PrintTable(cmd, "RegistryCARotation", done, done.print)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&r.now, "now", false, "do not wait for nodes that are off, whose agents get the CA when they "+
		"are back, and for those that boot for the first time")
	flags.StringSliceVar(&r.without, "without", nil, "do not wait for this node in any case (repeatable): until its "+
		"agent gets the CA, its pulls fail")
	flags.BoolVar(&r.wait, "wait", false, "wait until nothing trusts the CA before")
	flags.DurationVar(&r.timeout, "timeout", defaultRotation, "time limit of --wait")
	_ = cmd.RegisterFlagCompletionFunc("without", c.Value(corev1.SchemeGroupVersion.WithKind("Node")))
	return cmd
}

// rotatedCA is what was asked for, and what has come of it.
type rotatedCA struct {
	// Asked is the text of the request.
	Asked string `json:"asked"`
	// Before is the fingerprint of the CA in use when it was asked, and Now of the one that has replaced it, when that is
	// over.
	Before string `json:"before"`
	Now    string `json:"now,omitempty"`
	// Rotation is where it stands; there is none before it begins and after it ends.
	Rotation *authority.Rotation `json:"rotation,omitempty"`
}

// ask begins a rotation, or changes what the one that runs waits for.
func (r rotateCA) ask(ctx context.Context, api client.Client, namespace string) (*rotatedCA, error) {
	p, err := registrystatus.ReadPublished(ctx, api, namespace)
	if err != nil {
		return nil, err
	}
	if p.CA == nil {
		return nil, noCA(p.Conditions)
	}
	done := &rotatedCA{Asked: time.Now().UTC().Format(time.RFC3339Nano), Before: p.CA.Fingerprint, Rotation: p.CA.Rotation}
	if runs := p.CA.Rotation; runs != nil {
		done.Asked = p.CA.Asked
		if runs.Before != "" {
			done.Before = runs.Before
		}
		if !r.now && len(r.without) == 0 {
			return nil, fmt.Errorf("a rotation runs since %s: step %s, %s; it waits: %s. Let it end; --now and --without NODE "+
				"change what it waits for", runs.Began.Format(time.RFC3339), runs.Step, runs.Step.Does(), runs.Text())
		}
	}
	for _, node := range r.without {
		if err := api.Get(ctx, client.ObjectKey{Name: node}, &corev1.Node{}); err != nil {
			return nil, fmt.Errorf("--without: read node: %w", err)
		}
	}
	text, err := authority.Request{Asked: done.Asked, Now: r.now, Without: r.without}.Encode()
	if err != nil {
		return nil, err
	}
	return done, askCA(ctx, api, namespace, text)
}

// noCA says why no controller replaces the CA.
func noCA(conditions []metav1.Condition) error {
	if c := meta.FindStatusCondition(conditions, registrystatus.ConditionCA); c != nil {
		return fmt.Errorf("the controllers cannot replace the CA: %s", c.Message)
	}
	return fmt.Errorf("no controller has the CA of the registries: either the controllers are older than this program "+
		"(dayone cluster upgrade), or there is no Secret %s: replace the CA with dayone registry node-config --rotate",
		cluster.RegistryShared)
}

// askCA annotates the Secret. The answer has its metadata only, not the key.
func askCA(ctx context.Context, api client.Client, namespace, text string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		manifests.AnnotationRotateCA: text}}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	on := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster.RegistryShared}}
	on.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err = api.Patch(ctx, on, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("ask for another CA: %w: apply shared-secret.yaml of dayone registry node-config --node-agent", err)
	}
	if err != nil {
		return fmt.Errorf("ask for another CA: %w", err)
	}
	return nil
}

// follow says how far the rotation is until it has ended.
func (r rotateCA) follow(cmd *cobra.Command, api client.Client, namespace string, done *rotatedCA) error {
	look := func(p *registrystatus.Published) ([]string, bool) { return done.look(p), done.Now != "" }
	said, err := followPublished(cmd, r.timeout, api, namespace, look)
	if errors.Is(err, errNotYet) {
		return fmt.Errorf("the CA is not replaced after %s: %s. The controllers go on: dayone cluster registry status shows "+
			"what they wait for; --now and --without NODE change it", r.timeout, said)
	}
	return err
}

// look notes where the rotation stands, and says it in words.
func (d *rotatedCA) look(p *registrystatus.Published) (lines []string) {
	if p.CA == nil {
		return nil
	}
	d.Rotation = p.CA.Rotation
	if d.Rotation == nil {
		if p.CA.Fingerprint != d.Before {
			d.Now = p.CA.Fingerprint
			return []string{d.Now + " is in use, nothing trusts " + d.Before + " any more"}
		}
		lines = append(lines, "asked, the controllers look at the Secret within a minute")
		if c := meta.FindStatusCondition(p.Conditions, registrystatus.ConditionCA); c != nil &&
			c.Status != metav1.ConditionTrue {
			lines = append(lines, "waits: "+c.Message)
		}
		return lines
	}
	lines = append(lines, fmt.Sprintf("step %s: %s", d.Rotation.Step, d.Rotation.Step.Does()))
	if text := d.Rotation.Text(); text != "" {
		lines = append(lines, "waits: "+text)
	}
	return lines
}

func (d *rotatedCA) print(w io.Writer) {
	now := d.Now
	if now == "" {
		now = "asked: see dayone cluster registry status"
	}
	fmt.Fprintf(w, "CA BEFORE\tCA NOW\n%s\t%s\n", d.Before, now)
}

// writeCA shows the CA of the registries, and where a rotation of it stands.
func writeCA(t io.Writer, s *authority.Status) {
	if s == nil {
		return
	}
	fmt.Fprintf(t, "\nCA\tNAME\tVALID UNTIL\tREPLACED FROM\tROTATION\tSINCE\n%s\t%s\t%s\t%s\t", s.Fingerprint, s.Name,
		s.NotAfter.Format(time.DateOnly), s.RenewedFrom.Format(time.DateOnly))
	r := s.Rotation
	if r == nil {
		fmt.Fprint(t, "none\t\n")
	} else {
		fmt.Fprintf(t, "%s: %s\t%s\n", r.Step, r.Step.Does(), r.Since.Format(time.RFC3339))
		writeWaits(t, r)
	}
	if len(s.Behind) > 0 {
		fmt.Fprintf(t, "\nNODE\tHAS NOT SAID THAT IT TRUSTS THE CA\n")
		for _, node := range s.Behind {
			fmt.Fprintf(t, "%s\tits agent gets it from the API when it works\n", node)
		}
	}
}

func writeWaits(t io.Writer, r *authority.Rotation) {
	if len(r.Waits) > 0 {
		fmt.Fprint(t, "\nTHE ROTATION WAITS FOR\tWHY\n")
	}
	for _, wait := range r.Waits {
		who := "the cluster"
		if wait.Node != "" {
			who = "node " + wait.Node
		}
		fmt.Fprintf(t, "%s\t%s\n", who, wait.Why)
	}
	if r.More > 0 {
		fmt.Fprintf(t, "%d more\t\n", r.More)
	}
	if len(r.Without) > 0 {
		fmt.Fprintf(t, "not for\t%s\n", strings.Join(r.Without, ", "))
	}
}
