export PYTHONPATH=/tmp/w-persource PYSPARK_PYTHON=/work/main/.venv/bin/python; cd /tmp/w-persource
timeout 240 /work/main/.venv/bin/python "$@"
