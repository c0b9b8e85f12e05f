import sys,collections
from conformance.simulator.moving import moving
a,b=int(sys.argv[1]),int(sys.argv[2])
c=collections.Counter(); n=0
for seed in range(a,b):
    o=moving(seed)
    c["commits"]+=o.commits; c["steps"]+=o.steps; c["crashes"]+=o.crashes
    if o.violations:
        n+=1; print(seed,o.violations[:3])
        if n>5: break
print(c,n)
