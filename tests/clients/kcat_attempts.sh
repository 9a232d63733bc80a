# kcat_attempts.sh SERVERS: reads lines "mechanism user password topic" and prints for each what came of writing a record
# and reading it: "done", or kcat's errors.
while read -r mechanism user password topic; do
    sasl="-X security.protocol=SASL_PLAINTEXT -X sasl.mechanisms=$mechanism -X sasl.username=$user -X sasl.password=$password"
    found=$(echo kcat | kcat -b "$1" $sasl -X message.timeout.ms=10000 -P -t "$topic" 2>&1) &&
        found=$(kcat -b "$1" $sasl -C -t "$topic" -p 0 -o beginning -c 1 2>&1) && found=done
    echo "$found" | tr '\n' ' '
    echo
done
