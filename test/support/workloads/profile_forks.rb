# frozen_string_literal: true

# Children are forked while three threads take samples as fast as they can. Prints how many children hang, and how many
# frees were noticed too late.

require "json"
require "memscope_test"

def ends?(pid)
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 10
  until Process.wait(pid, Process::WNOHANG)
    return Process.kill(:KILL, pid) && Process.wait(pid) && false if
      Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

    sleep 0.001
  end
  true
end

Memscope::MallocProfile.start(rate: 512, backend: :imports)
3.times { Leaks.churn_behind(10_000_000) }
hanging = 0
500.times do
  hanging += 1 unless ends?(fork { Leaks.churn(200, :here) || exit!(0) })
  break if hanging.positive?
end
lost = Memscope.const_get(:Native).malloc_profile(nil)[:overhead][:lost_frees]
puts JSON.generate(hanging: hanging, lost_frees: lost)
$stdout.flush
exit!(0)
