import sys
from conformance.simulator.moving import moving
from conformance.mutants.catalogue import by_name
from conformance.mutants.planting import planted
import collections
from conformance.history.format import Told
c=collections.Counter()
import conformance.simulator.moving as m
orig=m.play
def spy(seed,cast,**k):
    o=orig(seed,cast,**k)
    for e in cast.world.history.events if hasattr(cast.world.history,'events') else []:
        pass
    return o
for name in sys.argv[1:]:
    with planted(by_name(name)):
        for seed in range(150):
            try: o=moving(seed)
            except Exception as e: print(name, seed, "raised", type(e), str(e)[:150]); break
            if o.violations: print(name, seed, o.violations[0][:200]); break
        else: print(name,"unseen")
