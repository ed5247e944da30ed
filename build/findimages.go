package build

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/registry/places"
)

// findImages asks for the images that the Containerfile names itself: the container engine would not say why it cannot
// get one. With mirrors it leaves that to the engine, which alone has all of their settings; see whyNotGot.
func findImages(ctx context.Context, client *appendengine.Client, in input) error {
	if in.Options.RegistriesConf != "" {
		return nil
	}
	return firstMissing(ctx, client, in)
}

// whyNotGot adds to the engine's failure why it did not get an image: what each mirror, and then the image's own
// registry, answers now. Where one of them has every image by now, the failure stays as it is.
func whyNotGot(ctx context.Context, client *appendengine.Client, in input, failed error) error {
	if !errors.Is(failed, ErrImageNotGot) {
		return failed
	}
	found := AsFailure(firstMissing(ctx, client, in))
	if found == nil {
		return failed
	}
	if engine := AsFailure(failed); engine != nil {
		found.Log, found.Excerpt = engine.Log, engine.Excerpt
	}
	return found
}

// firstMissing is the failure of the first image that no place has.
func firstMissing(ctx context.Context, client *appendengine.Client, in input) error {
	for _, use := range namedImages(in) {
		if err := exists(ctx, client, in.Options.RegistriesConf, use.Name); err != nil {
			f := registryFailure("containerfile", err)
			f.Message = oneLine(f.Message)
			f.Line, f.Instruction = use.Line, use.Name
			if appendengine.StatusOf(err) == http.StatusNotFound {
				f.Class, f.Next = ClassUser, "check the name of the image, and that it exists for this architecture"
			}
			return f
		}
	}
	return nil
}

// namedImages are the images that the Containerfile names and the request does not.
func namedImages(in input) (out []containerfile.Use) {
	if in.file == nil {
		return nil
	}
	for _, use := range in.file.Images() {
		if !strings.Contains(use.Name, "/") || strings.Contains(use.Name, "$") {
			continue // an image of the request, scratch, or a name that an ARG completes
		}
		if _, passed := in.Options.Contexts[use.Name]; !passed {
			out = append(out, use)
		}
	}
	return out
}

// exists is nil where a mirror of registries.conf, or the image's own registry, has the image. Else it is the error of
// each, the mirrors' first.
func exists(ctx context.Context, client *appendengine.Client, conf, image string) error {
	all, err := places.Of(conf, image)
	if err != nil {
		return err
	}
	var failed error
	for _, place := range all {
		err := client.Exists(ctx, place)
		if err == nil {
			return nil
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// oneLine joins the lines of what several places answer.
func oneLine(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.Trim(line, "; \n"); line != "" {
			out = append(out, line)
		}
	}
	return strings.Join(out, "; ")
}
