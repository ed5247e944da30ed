# Stand-in for the installer's bootstrap-service-record.sh: entries of the same form, without jq.
SERVICE_RECORDS_DIR=/var/log/openshift
add_record() { # FIELDS of a JSON object, without braces
    mkdir -p "$SERVICE_RECORDS_DIR"
    local file=$SERVICE_RECORDS_DIR/$SERVICE_NAME.json old=''
    [ ! -s "$file" ] || old=$(sed '1d;$d' "$file"),
    printf '[\n%s%s\n]\n' "$old" "{\"timestamp\":\"$(date -u +%FT%TZ)\",$1}" >"$file.new"
    mv "$file.new" "$file"
}
record_service_stage_start() { STAGE=$1; add_record "\"phase\":\"stage start\",\"stage\":\"$1\""; }
record_service_stage_success() { add_record "\"phase\":\"stage end\",\"stage\":\"$STAGE\",\"result\":\"success\""; }
add_record '"phase":"service start"'
