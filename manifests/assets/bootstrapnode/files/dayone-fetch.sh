#!/bin/bash
# Take the programs out of their image, which /etc/dayone/program.env names by digest. Safe to run again.
set -euo pipefail
container=dayone-program
podman image exists "$DAYONE_IMAGE" || podman pull --quiet --authfile /root/.docker/config.json "$DAYONE_IMAGE"
podman rm --force --ignore "$container" >/dev/null
podman create --name "$container" "$DAYONE_IMAGE" >/dev/null
for program in ${DAYONE_ALSO:-} dayone; do # that one last: with it all are there
	podman cp "$container:/usr/bin/$program" "/usr/local/bin/.$program.new"
	chmod 0755 "/usr/local/bin/.$program.new"
	if command -v restorecon >/dev/null; then restorecon "/usr/local/bin/.$program.new"; fi
	mv -T "/usr/local/bin/.$program.new" "/usr/local/bin/$program"
done
podman rm "$container" >/dev/null
